"""training_rules.adoc, "Benchmark Results": which runs make up a result, and that one system ran them all."""

from compliance.read.case import Case
from compliance.read.record import shown
from compliance.rules.rule import OLDEST, PACKAGE_CHECKER, TRAINING_RULES, Checked, Fault, Rule, Source, rule

_BENCHMARK_RESULTS = Source(TRAINING_RULES, "Benchmark Results")
_RESULT_FILES = Source(PACKAGE_CHECKER, "check_training_result_files")
_AGAIN = "run the benchmark again; if you have more than ten runs, submit ten consecutive ones"


@rule(
    "run-success", _BENCHMARK_RESULTS, "A run converges: it ends with status success",
    "submit an aborted run only as the one run that did not converge",
)  # fmt: skip
def run_converges(case: Case) -> Checked:
    for event in case.all("run_stop"):
        status = event.metadata.get("status")
        if status != "success":
            yield Fault(event.line, f"run_stop with status {shown(status)}")


# "Benchmark Results" gives ten as the number of runs in round 1.0, and as the minimum later. The program wants ten.
RUNS = Rule("runs", _RESULT_FILES, "A result has exactly ten runs", _AGAIN, since=OLDEST)
# "Benchmark Results" drops one run that doesn't converge; the program excuses one run that fails for any reason.
FAILED_RUNS = Rule(
    "failed-runs", _RESULT_FILES, "At most one run of a result may fail; it is dropped as the slowest", _AGAIN,
    since=OLDEST,
)  # fmt: skip
SAME_SYSTEM = Rule(
    "same-system", Source(TRAINING_RULES, "System and framework must be consistent"),
    "All runs of a result come from one system, named by submission_org and submission_platform", _AGAIN,
)  # fmt: skip
"""Logs name a system by these two keys. The section also asks for one framework, but no log names the framework."""
RULES = (run_converges, RUNS, FAILED_RUNS, SAME_SYSTEM)
