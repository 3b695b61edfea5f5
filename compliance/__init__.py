"""Judge MLPerf Training logs of BERT, of any origin, and submission packages.

It only reads files and needs neither torch nor bertbench. `python -m compliance --help` explains the command line.
The layers, from the lowest: `read` (logs, safely), `official` (MLCommons' programs), `rules` (what decides) and `ask`
(what a reviewer might ask), `judge` (one log), `package` (the runs of a result, a submission), `text`. Other programs
import `compliance.read`, and the functions here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from compliance.official import DEFAULT_RULESET as DEFAULT_RULESET  # one of the names for other programs

# Each function loads its package when it is called: `import compliance.read.log` needs none of the others.
if TYPE_CHECKING:
    from compliance.judge import Judgement
    from compliance.official.tools import Convergence
    from compliance.package.package import PackageJudgement
    from compliance.package.result import Result
    from compliance.read.run import Converged


def judge_log(path: Path, ruleset: str | None = None, division: str | None = None, strict: bool = False) -> "Judgement":
    """Judge one log, by a ruleset or by the one that the log says it is of.

    `division`: the one that the log must have. `strict`: missing evidence fails the log. Raises nothing: a path that is
    no log is a verdict, cannot-judge.
    """
    from compliance import judge  # noqa: PLC0415 - as above

    return judge.judge_log(path, ruleset, division, strict)


def judge_logs(
    path: Path, ruleset: str | None = None, division: str | None = None, strict: bool = False
) -> "list[Judgement]":
    """Judge the log at a path, or all result_*.txt of a folder at any level, each and with its folder's runs together.

    Arguments as for `judge_log`. Raises CannotJudge if nothing is at the path, if a folder has no log, and for a
    ruleset or a division that doesn't exist.
    """
    from compliance import judge  # noqa: PLC0415 - as above

    return judge.judge_logs(path, ruleset, division, strict)


def asked_together(judgements: "Sequence[Judgement]") -> "list[Judgement]":
    """Return the judgements of one folder's runs with the questions about them together; their verdicts stay."""
    from compliance import judge  # noqa: PLC0415 - as above

    return judge.asked_together(judgements)


def judge_result(folder: Path, ruleset: str | None = None) -> "Result":
    """Judge the runs of results/<system>/<benchmark>, each and together, by the description in the same package.

    Raises CannotJudge if there is no such folder.
    """
    from compliance.package import result  # noqa: PLC0415 - as above

    return result.judge_result(folder, ruleset)


def judge_package(root: Path, ruleset: str | None = None, strict: bool = False) -> "PackageJudgement":
    """Judge the package in a folder; `strict`: missing evidence fails it. Raises CannotJudge if it has no results/."""
    from compliance.package import package  # noqa: PLC0415 - as above

    return package.judge_package(root, ruleset, strict)


def package_text(judgement: "PackageJudgement") -> str:
    """Return the verdict on a package as text for a terminal."""
    from compliance import text  # noqa: PLC0415 - as above

    return text.of_package(judgement)


def rulesets() -> tuple[str, ...]:
    """Return the rulesets under which a log of BERT can pass, the oldest first."""
    from compliance.official import ruleset  # noqa: PLC0415 - as above

    return ruleset.accepted_rulesets()


def runs_per_result(benchmark: str) -> int:
    """Return the number of runs that make a result."""
    from compliance.official import tools  # noqa: PLC0415 - as above

    return tools.runs_per_result(benchmark)


def convergence(runs: "Sequence[Converged]", ruleset: str, reference: str | None = None) -> "Convergence":
    """Judge samples to converge by the official RCP checker's points, or by `reference`, JSON in their form."""
    from compliance.official import tools  # noqa: PLC0415 - as above

    return tools.convergence(runs, ruleset, reference)
