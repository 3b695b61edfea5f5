"""training_rules.adoc, "Hyperparameters": LAMB, and the tunable values, which may be any number.

The table of that section leaves BERT's tunable hyperparameters unconstrained. A text, NaN or null is no value of one.
"""

import re

from compliance.read.case import Case
from compliance.read.record import distinct, shown
from compliance.read.run import number
from compliance.rules.fixed_values import FIXED
from compliance.rules.rule import (
    LOG_CHECKER,
    OLDEST,
    TRAINING_RULES,
    Checked,
    Fault,
    Gap,
    Source,
    rule,
    unsound,
)

_HYPERPARAMETERS = Source(TRAINING_RULES, "Hyperparameters")
TUNABLE = (
    "opt_base_learning_rate", "opt_epsilon", "opt_lamb_epsilon", "opt_learning_rate_training_steps",
    "opt_learning_rate_warmup_steps", "num_warmup_steps", "start_warmup_step", "opt_lamb_beta_1", "opt_lamb_beta_2",
    "opt_lamb_weight_decay_rate", "gradient_accumulation_steps",
)  # fmt: skip
_LAMB = re.compile("(?i)lamb(?!da)")
"""Any spelling, as in apex.optimizers.FusedLAMB: the section's appendix lists implementations as examples only."""
_SINGLE = ("global_batch_size", *TUNABLE, *(fixed.key for fixed in FIXED), "train_samples", "eval_samples")


@rule(
    "batch-size", _HYPERPARAMETERS, "The global batch size is a positive whole number",
    "log the samples of one optimizer step over all accelerators", since=OLDEST,
)  # fmt: skip
def batch_is_a_number_of_samples(case: Case) -> Checked:
    if case.first("global_batch_size") is None:
        yield Gap("the log gives no global_batch_size")  # in the closed division the official checker asks for it
    for event in case.all("global_batch_size"):
        size = number(event.value)
        if size is None or size <= 0 or size % 1:
            yield Fault(event.line, f"global_batch_size {shown(event.value)}")


@rule(
    "hyperparameter", _HYPERPARAMETERS, "A closed run's tunable hyperparameters are finite numbers",
    "log the number that the optimizer or the schedule uses", since=OLDEST,
)  # fmt: skip
def tunable_values_are_numbers(case: Case) -> Checked:
    if not case.closed:
        return
    for key in TUNABLE:
        yield from unsound(case, key, lambda value: number(value) is not None)


@rule(
    "optimizer", _HYPERPARAMETERS, "The closed division trains with LAMB",
    "train with LAMB, or submit to the open division", since=OLDEST,
)  # fmt: skip
def optimizer_is_lamb(case: Case) -> Checked:
    if not case.closed:
        return
    if case.first("opt_name") is None:
        yield Gap("the log doesn't give opt_name", asked=False)
    yield from unsound(case, "opt_name", lambda name: isinstance(name, str) and _LAMB.search(name))


@rule(
    "repeated", Source(LOG_CHECKER, "closed_bert.yaml, EXACTLY_ONE"), "A closed log gives a single value once",
    "let one rank log it, once", since=OLDEST,
)  # fmt: skip
def single_values_are_given_once(case: Case) -> Checked:
    """Find a single value that is given again with another value: it has no meaning then. The same again is harmless.

    The official checker only warns of a key that stands twice.
    """
    if not case.closed:
        return
    for key in _SINGLE:
        events = case.all(key)
        for event in events[1:]:
            if len(distinct((events[0].value, event.value))) > 1:
                yield Fault(event.line, f"{key} {shown(event.value)} again, not as on line {events[0].line}")


RULES = (
    batch_is_a_number_of_samples, tunable_values_are_numbers, optimizer_is_lamb, single_values_are_given_once,
)  # fmt: skip
