"""Judge MLPerf Training logs of BERT from any program, and submission packages.

This package only reads files, and needs neither torch nor bertbench. `python -m compliance --help` explains the command
line. Its layers, from the lowest: `read` (reads logs safely), `official` (MLCommons' programs), `rules` (decide the
verdict) and `ask` (questions of a reviewer), `judge` (one log), `package` (the runs of a result, and a submission),
`text` (the output). Other programs import `compliance.read` and the functions in this file.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from compliance.official import DEFAULT_RULESET as DEFAULT_RULESET  # for other programs

# Each function imports its package when it is called, because `import compliance.read.log` needs no other package.
if TYPE_CHECKING:
    from compliance.judge import Judgement
    from compliance.package.package import PackageJudgement
    from compliance.package.result import Result


def judge_log(path: Path, ruleset: str | None = None, division: str | None = None, strict: bool = False) -> "Judgement":
    """Judge one log under the given ruleset, or else under the one that the log indicates.

    `division` is the one that the log must be in. With `strict`, missing evidence fails the log. Raises nothing: if the
    path isn't a log, the verdict is cannot-judge.
    """
    from compliance import judge  # noqa: PLC0415 - as above

    return judge.judge_log(path, ruleset, division, strict)


def judge_logs(
    path: str | Path, ruleset: str | None = None, division: str | None = None, strict: bool = False
) -> "list[Judgement]":
    """Judge the log at a path, or each result_*.txt below a folder, and compare the runs of each folder.

    `ruleset` is a round such as "5.0.0"; by default, it is the one that the log names. `division`, "closed" or "open",
    is the division that a log must have. With `strict`, missing evidence fails a log.

    A judgement has a `verdict` ("pass", "fail" or "cannot-judge", which a file that isn't a log gets), `breaches`
    (rule, found, expected, line), and `questions` that a reviewer might ask, which don't affect the verdict. Its
    `as_json()` returns the fields of `--json`.

    Raises CannotJudge if there is nothing at the path, if a folder has no log, and for a ruleset or a division that
    doesn't exist.
    """
    from compliance import judge  # noqa: PLC0415 - as above

    return judge.judge_logs(Path(path), ruleset, division, strict)


def asked_together(judgements: "Sequence[Judgement]") -> "list[Judgement]":
    """Return the judgements of one folder's runs, with the questions that compare the runs; no verdict changes."""
    from compliance import judge  # noqa: PLC0415 - as above

    return judge.asked_together(judgements)


def judge_result(folder: Path, ruleset: str | None = None) -> "Result":
    """Judge the runs in results/<system>/<benchmark>, alone and together, with the description in the same package.

    Raises CannotJudge if there is no such folder.
    """
    from compliance.package import result  # noqa: PLC0415 - as above

    return result.judge_result(folder, ruleset)


def judge_package(root: Path, ruleset: str | None = None, strict: bool = False) -> "PackageJudgement":
    """Judge the package in a folder. With `strict`, missing evidence fails it.

    Raises CannotJudge if the folder has no results/.
    """
    from compliance.package import package  # noqa: PLC0415 - as above

    return package.judge_package(root, ruleset, strict)


def package_text(judgement: "PackageJudgement") -> str:
    """Return the verdict on a package as text for a terminal."""
    from compliance import text  # noqa: PLC0415 - as above

    return text.of_package(judgement)


def rulesets() -> tuple[str, ...]:
    """Return the rulesets under which a log of BERT can pass, oldest first."""
    from compliance.official import ruleset  # noqa: PLC0415 - as above

    return ruleset.accepted_rulesets()


def runs_per_result(benchmark: str) -> int:
    """Return the number of runs that make up a result."""
    from compliance.official import tools  # noqa: PLC0415 - as above

    return tools.runs_per_result(benchmark)
