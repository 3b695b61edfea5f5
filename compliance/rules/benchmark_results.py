"""training_rules.adoc, "Benchmark Results": which runs make a result, and that they are of one system."""

from compliance.read.case import Case
from compliance.read.record import shown
from compliance.rules.rule import OLDEST, PACKAGE_CHECKER, TRAINING_RULES, Checked, Fault, Rule, Source, rule

_BENCHMARK_RESULTS = Source(TRAINING_RULES, "Benchmark Results")
_RESULT_FILES = Source(PACKAGE_CHECKER, "check_training_result_files")
_AGAIN = "run the benchmark again; from more than ten runs, take ten consecutive ones"


@rule(
    "run-success", _BENCHMARK_RESULTS, "A run converges: it ends with status success",
    "an aborted run counts as one that did not converge; submit it only as such",
)  # fmt: skip
def run_converges(case: Case) -> Checked:
    for event in case.all("run_stop"):
        status = event.metadata.get("status")
        if status != "success":
            yield Fault(event.line, f"run_stop with status {shown(status)}")


# "Benchmark Results" gives ten as the number of runs in round 1.0, and as the minimum later. The program wants ten.
RUNS = Rule("runs", _RESULT_FILES, "A result has exactly ten runs", _AGAIN, since=OLDEST)
# "Benchmark Results" drops a single run that doesn't converge; the program excuses a single run that fails in any way.
FAILED_RUNS = Rule(
    "failed-runs", _RESULT_FILES, "At most one run of a result fails; it is dropped as the slowest", _AGAIN,
    since=OLDEST,
)  # fmt: skip
SAME_SYSTEM = Rule(
    "same-system", Source(TRAINING_RULES, "System and framework must be consistent"),
    "All runs of a result are of one system, as submission_org and submission_platform name it", _AGAIN,
)  # fmt: skip
"""Logs name a system by these two keys. The section also wants one framework; no log names it, so it isn't checked."""
RULES = (run_converges, RUNS, FAILED_RUNS, SAME_SYSTEM)
