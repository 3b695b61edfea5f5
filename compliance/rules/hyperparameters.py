"""Rules about hyper-parameters: each is a possible number and is logged once."""

import re
from collections.abc import Callable

from compliance.description import in_all
from compliance.finding import Breach, Breaches, Case, Rule, odd
from compliance.record import distinct, shown
from compliance.rules.division import FIXED
from compliance.rules.samples import TRAINING_STEPS
from compliance.run import alone, number, numeric

_HYPERPARAMETERS = "training_rules.adoc: hyper-parameters and optimizers"
_Range = tuple[str, Callable[[float], bool]]
_POSITIVE: _Range = ("positive", lambda value: value > 0)
_SHARE: _Range = ("above 0, at most 1", lambda value: 0 < value <= 1)
_NOT_NEGATIVE: _Range = ("not negative", lambda value: value >= 0)
_BETA: _Range = ("between 0 and 1", lambda value: 0 < value < 1)
_ANY: _Range = ("finite", lambda value: True)

NUMBERS = {
    "opt_base_learning_rate": _SHARE,
    "opt_lamb_epsilon": _POSITIVE,
    "opt_epsilon": _POSITIVE,
    "opt_learning_rate_training_steps": _POSITIVE,
    "opt_learning_rate_warmup_steps": _NOT_NEGATIVE,
    "num_warmup_steps": _NOT_NEGATIVE,
    "start_warmup_step": _ANY,  # published values go down to -200,000
    "opt_lamb_beta_1": _BETA,
    "opt_lamb_beta_2": _BETA,
    "opt_lamb_weight_decay_rate": (
        "from 0 to 1",
        lambda value: 0 <= value <= 1,
    ),  # round 2.0 logged 0 for what was 0.01
    "gradient_accumulation_steps": _POSITIVE,
    "opt_learning_rate_decay_steps": _POSITIVE,
}
# As spelled by submitters.
_LAMB = re.compile(
    "(nv|fused|distributed|multi|tensor|apex|tf|bert|optim(izers?)?|contrib|torch|mixedprecision|b?fp?16)*lamb(optimizer)?"
)
_OTHER_OPTIMIZER = re.compile("(opt_)?(adamw?|sgd|lars|adafactor|adagrad)_")
# Parts of the batch, and their number. The first two divide it; the others may be of packed rows, and are no larger.
_PARTS = (
    "d_batch_size", "gradient_accumulation_steps", "local_batch_size", "micro_batch_size", "train_batch_size",
)  # fmt: skip
_BATCHES = (8, 65_536)  # published logs have 66 to 16,416
_NAMES = ("submission_division", "submission_benchmark", "submission_org", "submission_platform")


def _batch(case: Case) -> Breaches:
    if not case.all("global_batch_size"):
        yield Breach(None, "no global_batch_size", None, "warning")  # an error of the official checker if closed
    for event in case.all("global_batch_size"):
        value = number(event.value)
        if not value or value < 0 or value % 1:
            yield Breach(event.line, f"global_batch_size {shown(event.value)}")
        elif case.closed and not _BATCHES[0] <= value <= _BATCHES[1]:
            yield Breach(event.line, f"global_batch_size {value:,.0f}", f"{_BATCHES[0]} to {_BATCHES[1]:,}")
    for key in _PARTS:
        for event in case.all(key):
            part = numeric(alone(event.value)) or 0.0
            if case.batch and (part <= 0 or case.batch % part >= (key in _PARTS[:2] or case.batch)):
                yield Breach(event.line, f"{key} {shown(event.value)}", "a part of the batch", "warning")
    batch, parts = case.batch or 0.0, case.number("gradient_accumulation_steps") or 1.0
    whole = parts * (in_all(case.system) or 0.0) * (case.number("d_batch_size") or 0.0)
    # packed rows hold two samples; several accelerators may share a model
    if whole > 0 and (batch > 2 * whole or (batch % whole and whole % batch)):
        found = f"d_batch_size x accumulation x described accelerators {whole:g}"
        yield Breach(None, found, "the batch, or its half if packed", "warning")


def _numbers(case: Case) -> Breaches:
    for key, (expected, sound) in NUMBERS.items():
        for event in case.all(key):
            value = number(event.value)
            if value is not None and sound(value) and ("step" not in key or not value % 1):
                continue
            # Published closed logs of round 2.0 give 0 training steps where the schedule was built elsewhere.
            mild = not case.closed or (key == TRAINING_STEPS and value == 0)
            due = f"a {'whole number' if 'step' in key else 'number'}, {expected}"
            yield Breach(event.line, f"{key} {shown(event.value)}", due, "warning" if mild else "error")


def _optimizer(case: Case) -> Breaches:
    if not case.closed:
        return
    if not case.first("opt_name"):
        case.skip("optimizer", "opt_name is not in the log")
    for key in ("opt_name", "optimizer", "optimizer_class", "optimizer_name"):
        yield from odd(case, key, lambda name: _LAMB.fullmatch(re.sub(r"[\W_]+", "", str(name).lower())))
    for key in filter(_OTHER_OPTIMIZER.match, case.keys()):
        yield Breach(case.all(key)[0].line, f"{key}, of another optimizer", None, "warning")


def _repeated(case: Case) -> Breaches:
    for key in (
        "global_batch_size", "d_batch_size", *NUMBERS, *FIXED, "train_samples", "eval_samples", "init_stop", *_NAMES,
    ):  # fmt: skip
        events = case.all(key)
        for event in events[1:]:
            if len(distinct((event.value, events[0].value))) > 1:
                found = f"{key} {shown(event.value)} again, not as on line {events[0].line}"
                yield Breach(event.line, found, None, "error" if case.closed else "warning")


RULES = (
    Rule(
        "batch-size", "The global batch size is a positive whole number that converges",
        _HYPERPARAMETERS, "error", "log the samples of one optimizer step over all accelerators", _batch,
    ),
    Rule(
        "hyperparameter", "Hyper-parameters are finite numbers in their range", _HYPERPARAMETERS, "error",
        "log the number that the optimizer or the schedule uses", _numbers,
    ),
    Rule(
        "optimizer", "The closed division trains with LAMB", _HYPERPARAMETERS, "error",
        "train with LAMB, or submit to the open division", _optimizer,
    ),
    Rule(
        "repeated", "A single value doesn't change", "mlcommons/logging, compliance_checker", "warning",
        "let one rank log it, once", _repeated,
    ),
)  # fmt: skip
