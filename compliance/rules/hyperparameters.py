"""training_rules.adoc, "Hyperparameters": LAMB, and the tunable values, which may be any number.

The table in that section is for the closed division, and leaves BERT's tunable hyperparameters unconstrained. NaN, null
and words aren't values. A number may be written as text, or as a list with one element, as in `fixed_values`.
"""

import re

from compliance.read.case import Case
from compliance.read.record import distinct, shown
from compliance.read.run import alone, numeric
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
    "opt_base_learning_rate", "opt_epsilon", "opt_learning_rate_training_steps", "opt_learning_rate_warmup_steps",
    "num_warmup_steps", "start_warmup_step", "opt_lamb_beta_1", "opt_lamb_beta_2", "opt_lamb_weight_decay_rate",
)  # fmt: skip
"""BERT's rows of the table, except the batch size; opt_lamb_epsilon and gradient_accumulation_steps aren't in it."""
_LAMB = re.compile(
    r"(?i)(?:\w+\.)*_*(?:(?:apex|fused|distributed|sharded|multi|tensor|apply|nv|nvidia|tf|torch|habana)[_-]?)*"
    r"lamb(?:[_ -]?(?:optimizer|optim|op|v?\d+))*"
)
"""LAMB's name, with a package before it and how it is implemented, as in apex.optimizers.FusedLAMB.

The section's appendix lists implementations as examples only. A text that says more than a name, or names another
optimizer, isn't LAMB's name.
"""
_SINGLE = (
    "train_samples", "eval_samples", "global_batch_size", *(key for key in TUNABLE if key != "opt_epsilon"),
)  # fmt: skip
"""Keys that are EXACTLY_ONE in common.yaml and closed_bert.yaml of every round."""


def _single(ruleset: str) -> tuple[str, ...]:
    """Return the keys of settings that a round's files require EXACTLY_ONE of in a closed log."""
    epsilon = "opt_lamb_epsilon" if ruleset >= "2.1.0" else "opt_epsilon"
    in_closed_common = ("gradient_accumulation_steps",) if ruleset >= "1.0.0" else ()
    return (*_SINGLE, epsilon, *in_closed_common)


@rule(
    "batch-size", _HYPERPARAMETERS, "A closed run's global batch size is a positive whole number",
    "log the number of samples per optimizer step, over all accelerators",
)  # fmt: skip
def batch_is_a_number_of_samples(case: Case) -> Checked:
    if case.first("global_batch_size") is None:
        # the official checker requires it in the closed division; no rule does in the open one
        yield Gap("the log gives no global_batch_size", asked=False)
    if not case.closed:
        return
    for event in case.all("global_batch_size"):
        size = numeric(alone(event.value))
        if size is None or size <= 0 or size % 1:
            yield Fault(event.line, f"global_batch_size {shown(event.value)}")


@rule(
    "hyperparameter", _HYPERPARAMETERS, "A closed run's tunable hyperparameters are finite numbers",
    "log the number that the optimizer or the schedule uses",
)  # fmt: skip
def tunable_values_are_numbers(case: Case) -> Checked:
    if not case.closed:
        return
    for key in TUNABLE:
        yield from unsound(case, key, lambda value: numeric(alone(value)) is not None)


@rule(
    "optimizer", _HYPERPARAMETERS, "The closed division trains with LAMB",
    "train with LAMB, or submit to the open division",
)  # fmt: skip
def optimizer_is_lamb(case: Case) -> Checked:
    if not case.closed:
        return
    if case.first("opt_name") is None:
        yield Gap("the log doesn't give opt_name", asked=False)
    yield from unsound(case, "opt_name", lambda name: isinstance(name, str) and _LAMB.fullmatch(name.strip()))


@rule(
    "repeated", Source(LOG_CHECKER, "EXACTLY_ONE in common.yaml, closed_common.yaml, closed_bert.yaml"),
    "A closed log gives one value for each setting that these files require once",
    "let a single rank log the setting, once", since=OLDEST,
)  # fmt: skip
def single_values_are_given_once(case: Case) -> Checked:
    """Find settings with two different values, which leave their meaning open. The same value twice is harmless.

    The official checker only warns of a key that occurs twice.
    """
    if not case.closed:
        return
    for key in _single(case.ruleset):
        first = case.first(key)
        for event in case.all(key)[1:]:
            if first is not None and len(distinct((first.value, event.value))) > 1:
                both = f"{key} {shown(event.value)}, but {shown(first.value)} on line {first.line}"
                yield Fault(event.line, both)


RULES = (
    batch_is_a_number_of_samples, tunable_values_are_numbers, optimizer_is_lamb, single_values_are_given_once,
)  # fmt: skip
