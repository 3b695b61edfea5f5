"""training_rules.adoc, "Reference Convergence Points (RCPs)": samples to converge, and the scaling of the score."""

from itertools import pairwise

from compliance.read.case import Case
from compliance.read.record import shown
from compliance.read.run import number
from compliance.rules.rule import OLDEST, TRAINING_RULES, Checked, Fault, Gap, Rule, Source, rule


@rule(
    "epoch-num", Source(TRAINING_RULES, "RCP Rules and Guidelines"),
    "A closed log reports the number of training samples at each evaluation, as epoch_num",
    "log the number of training samples so far as epoch_num", since="1.1.0",
)  # fmt: skip
def evaluations_report_training_samples(case: Case) -> Checked:
    """Find counts that aren't numbers, and counts that decrease.

    320 of 2,480 published logs count epochs or steps instead. They don't show the evaluation interval, but they don't
    show a fault in the run either.
    """
    if not case.closed:
        return
    for event in case.all("eval_accuracy"):
        count = event.metadata.get("epoch_num", 0)  # the official checker reports an evaluation without epoch_num
        samples = number(count)
        if samples is None or samples < 0:
            yield Fault(event.line, f"epoch_num {shown(count)}")
    counted = [evaluation for evaluation in case.evaluations if evaluation.samples is not None]
    for before, after in pairwise(counted):
        assert before.samples is not None and after.samples is not None
        if after.samples < before.samples and after.time_ms >= before.time_ms:
            yield Fault(
                after.line,
                f"epoch_num {after.samples:,.0f} after {before.samples:,.0f} on line {before.line}",
                "a count that doesn't decrease",
            )
    if counted and not case.in_samples():
        yield Gap(
            f"epoch_num {counted[-1].samples:,.0f} at the last evaluation isn't a number of samples, so the interval "
            "between evaluations can't be checked"
        )


CONVERGENCE = Rule(
    "convergence", Source(TRAINING_RULES, "Reference Convergence Points (RCPs)"),
    "A closed result doesn't need significantly fewer samples than the reference, by the official RCP checker",
    "run again, or submit a reference convergence point (RCP) for this batch size",
)  # fmt: skip
# "Score scaling" lets the review decide on another factor. Before the review, only the RCP checker gives one.
SCALING = Rule(
    "scaling", Source("mlcommons/logging, result_summarizer", "_get_scaling_factor"),
    "scaling.json, if present, has the official RCP checker's factor as scaling_factor",
    "remove the file; the official package checker writes it", since=OLDEST,
)  # fmt: skip
RULES = (evaluations_report_training_samples, CONVERGENCE, SCALING)
