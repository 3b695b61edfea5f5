"""Read the time limits that published configurations export: WALLTIME of a job, and WALLTIME_MINUTES of one run.

A job's limit counts if it is exported. Otherwise the job gets the sum of its runs' limits and SPARE_MINUTES.
"""

import math
import re
from collections.abc import Callable, Iterator

from bertbench.launch.variables import Exported, Variables, whole_number

UNLIMITED = "UNLIMITED"
SPARE_MINUTES = 5
"""Minutes of a job besides those of its runs, for its own start and end."""


class TimeLimits:
    """The exported limits of a job and of a run, at least one of them; `problems` names malformed ones."""

    def __init__(self, job_limit: Exported | None, run_limit: Exported | None, runs: int) -> None:
        self.problems: list[str] = []
        self._job_limit = job_limit
        self._run_limit = run_limit
        self._job_minutes = self._read(job_limit, minutes_of)
        run_minutes = self._read(run_limit, _whole_minutes)
        self._needed = None if run_minutes is None else runs * run_minutes + SPARE_MINUTES
        """Minutes that a job of all runs may take."""

    def __str__(self) -> str:
        return " and ".join(str(limit) for limit in (self._job_limit, self._run_limit) if limit is not None)

    def _read(self, exported: Exported | None, read: Callable[[str], float]) -> float | None:
        """Return a limit in minutes; None if it isn't exported, or if it is malformed, which is recorded."""
        if exported is None:
            return None
        try:
            return read(exported.value)
        except ValueError as error:
            self.problems.append(f"{exported}: expected {error}")
            return None

    def set_walltime(self, variables: Variables) -> None:
        """Let the job end after its own limit or, if it has none, after those of its runs."""
        if self._job_limit is not None and self._job_minutes is not None:
            variables.walltime = self._job_limit.value
            variables.honour(self._job_limit, _end_of_job(self._job_minutes))
        elif self._run_limit is not None and self._needed is not None:
            variables.walltime = UNLIMITED if math.isinf(self._needed) else str(self._needed)
            variables.honour(self._run_limit, _end_of_job(self._needed))

    def warnings(self, runs_as_typed: str) -> Iterator[str]:
        """Yield a warning if the job may end before its runs do; `runs_as_typed` is the text that asks for the runs."""
        if self._job_minutes is None or self._needed is None or self._job_minutes >= self._needed:
            return
        needed = UNLIMITED if math.isinf(self._needed) else self._needed
        yield (
            f"warning: {self._job_limit} is less than {runs_as_typed} may need with {self._run_limit}; "
            f"export WALLTIME={needed}, or export NEXP and source the configuration file again"
        )


def _end_of_job(minutes: float) -> str:
    return "the job has no time limit of its own" if math.isinf(minutes) else f"the job ends after {minutes} minutes"


def minutes_of(text: str) -> float:
    """Return a time limit in minutes, rounded up, as sbatch --time takes it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    It is infinite for UNLIMITED and INFINITE. Raises ValueError that says what is expected.
    """
    if text.upper() in (UNLIMITED, "INFINITE"):
        return math.inf
    parts = re.fullmatch(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?", text)
    if parts is None:
        raise ValueError("minutes, or a time as sbatch takes it, such as 90 or 1:30:00")
    first, second, third = (int(parts[name] or 0) for name in ("first", "second", "third"))
    if parts["days"] is not None:
        seconds = int(parts["days"]) * 86400 + first * 3600 + second * 60 + third
    elif parts["third"] is not None:
        seconds = first * 3600 + second * 60 + third
    else:
        seconds = first * 60 + second
    if not seconds:
        raise ValueError("a time above 0")
    return math.ceil(seconds / 60)


def _whole_minutes(text: str) -> float:
    return math.inf if text.upper() == UNLIMITED else int(whole_number(1)(text))
