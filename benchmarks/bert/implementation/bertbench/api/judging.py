"""Judge logs, as `bertbench judge` does; the judge is the package `compliance`, which is loaded when it is called."""

from pathlib import Path
from typing import TYPE_CHECKING

import compliance
from bertbench.api.runs import find_log
from bertbench.common.user_errors import user_errors

if TYPE_CHECKING:
    from compliance.judge import Judgement


@user_errors()
def judge_log(
    log: str | Path, ruleset: str | None = None, division: str | None = None, strict: bool = False
) -> "Judgement":
    """Judge one log by MLCommons' checker and by the rules.

    `ruleset` is a round such as "5.0.0", by default the one that the log says it is of. `division` is the one that the
    log must have: "closed" or "open". With `strict`, missing evidence fails the log.

    The judgement has `verdict` ("pass", "fail" or "cannot-judge"), `breaches` (rule, found, expected, line) and
    `questions` that a reviewer might ask and that decide nothing. Its `as_json()` has the fields of `bertbench judge
    --json`.

    Raises BertbenchError if nothing is at the path, if it has several logs, or for a ruleset or a division that doesn't
    exist. A file that is no log is a verdict: "cannot-judge".
    """
    return compliance.judge_logs(find_log(Path(log)), ruleset, division, strict)[0]


@user_errors()
def judge_folder(
    folder: str | Path, ruleset: str | None = None, division: str | None = None, strict: bool = False
) -> "tuple[Judgement, ...]":
    """Judge all result_*.txt of a folder, at any level, and ask about those of one folder together: copies, paces.

    Arguments and errors are those of `judge_log`.
    """
    return tuple(compliance.judge_logs(Path(folder), ruleset, division, strict))
