"""training_rules.adoc, "Data Set": the state of the data at the start of a run.

The values that this section fixes, such as the length of samples, are in the table of `fixed_values`.
"""

from compliance.read.case import Case
from compliance.rules.rule import TRAINING_RULES, Checked, Gap, Source, rule

_YES = ("true", "yes", "on", "1", "1.0", "none")
"""An event without a value means that it happened."""


@rule(
    "cache-clear", Source(TRAINING_RULES, "Data State at Start of Run"),
    "Before a run, the caches are flushed or the system is restarted",
    "clear the caches before run_start, and log cache_clear",
)  # fmt: skip
def caches_are_cleared(case: Case) -> Checked:
    """Look for a cleared cache in the log, in both divisions.

    A restart leaves no trace in a log, so a log alone can't show a breach.
    """
    start = case.first("run_start")
    cleared = [
        event for event in case.all("cache_clear")
        if str(event.value).lower() in _YES
        and (start is None or event.line < start.line or event.time_ms <= start.time_ms)
    ]  # fmt: skip
    if case.all("cache_clear") and not cleared:
        reason = "the log doesn't show that the caches were cleared before run_start; no log can show a system restart"
        yield Gap(reason)


RULES = (caches_are_cleared,)
