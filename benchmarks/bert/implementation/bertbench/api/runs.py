"""Read a run for Python: the summary that `bertbench report` shows."""

from pathlib import Path

from bertbench.common.errors import DataError
from bertbench.common.user_errors import user_errors
from bertbench.runs.run_summary import RunSummary, read_summary
from compliance.read.find import find_logs


@user_errors()
def read_run(run: str | Path) -> RunSummary:
    """Read a run, given its log, the folder of the log, or the log's name without .txt. `judge_log` judges it.

    Logs of other programs can be read, too, but have no metrics or settings.

    Raises BertbenchError if there is nothing at the path, if it isn't a log, or if the path contains several logs.
    """
    return read_summary(find_log(Path(run)))


def find_log(path: Path) -> Path:
    """Return the only log at a path. Raises CannotJudge if there is none, DataError if there are several."""
    logs = find_logs(path)
    if len(logs) > 1:
        raise DataError(f"{path}: found {len(logs)} logs, expected one; name one of them, such as {logs[0]}")
    return logs[0]
