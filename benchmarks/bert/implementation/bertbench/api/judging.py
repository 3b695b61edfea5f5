"""Judge logs as `bertbench judge` does. The judge is the package `compliance`, which is loaded when it is called."""

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

    `ruleset` is a round such as "5.0.0"; by default, it is the one that the log names. `division`, "closed" or "open",
    is the division that the log must have. With `strict`, missing evidence fails the log.

    The judgement has a `verdict` ("pass", "fail" or "cannot-judge"), `breaches` (rule, found, expected, line), and
    `questions` that a reviewer might ask, which don't affect the verdict. Its `as_json()` returns the fields of
    `bertbench judge --json`.

    Raises BertbenchError if there is nothing at the path, if the path contains several logs, or if the ruleset or the
    division doesn't exist. For a file that isn't a log, the verdict is "cannot-judge".
    """
    return compliance.judge_logs(find_log(Path(log)), ruleset, division, strict)[0]


@user_errors()
def judge_folder(
    folder: str | Path, ruleset: str | None = None, division: str | None = None, strict: bool = False
) -> "tuple[Judgement, ...]":
    """Judge all result_*.txt in a folder, at any level, and compare those of each folder: copies, speeds.

    Arguments and errors are those of `judge_log`.
    """
    return tuple(compliance.judge_logs(Path(folder), ruleset, division, strict))
