"""The values that the closed division fixes, each with the section of training_rules.adoc that fixes it.

A number may be written as text, or as a list with one element, as some loggers do. Keys that aren't in the table may
have any value. The keys of mlperf-logging and of published logs come first. The keys that begin with bertbench_ occur
only in our own logs; the official checker ignores them.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from compliance.read.case import Case
from compliance.read.record import shown
from compliance.read.run import alone, numeric
from compliance.rules.rule import TRAINING_RULES, Checked, Fault, Gap, Source, rule

_OUR_PREFIX = "bertbench_"
_SIZES = {"layers": 24, "hidden_size": 1024, "attention_heads": 16, "feed_forward_size": 4096, "max_positions": 512}
_LENGTH_KEY = "max_sequence_length"
_LONGEST = 512
"""Tokens of the reference's sequences."""
_VOCABULARY = range(30_522, 30_529)
"""From the size of the reference's vocabulary up to the next multiple of 8, to which programs pad it."""

_Test = Callable[[Any, str], bool]
"""Return whether a value is allowed under a ruleset."""

_CLIP_SECTIONS = (
    "Appendix: Benchmark Specific Rules; in 1.0, 1.1: v1.0/v1.1 Specific Rules, BERT clip-normalization order"
)
_FORMATS = (
    "fp64", "fp32", "tf32", "fp16", "bf16", "bfloat16", "graphcore float 16.16", "int8", "uint8", "int4", "uint4",
)  # fmt: skip
_FP8_SINCE = "2.0.0"


class Fixed(NamedTuple):
    """One fixed value: its key, the section that fixes it, the value that a log must have, and the test of a value."""

    key: str
    section: str
    expected: str
    is_sound: _Test

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `rules --json` prints."""
        return {"key": self.key, "expected": self.expected, "section": self.section}


def _equals(reference: float) -> _Test:
    def test(value: Any, _: str) -> bool:
        number = numeric(alone(value))
        return number is not None and math.isclose(number, reference, rel_tol=1e-6)

    return test


def _one_of(*allowed: str) -> _Test:
    return lambda value, _: str(value).lower() in allowed


def _is_approved_format(value: Any, ruleset: str) -> bool:
    name = str(value).lower()
    return name in ("none", *_FORMATS) or (name == "fp8" and ruleset >= _FP8_SINCE)


def _may_be_shorter_in_training(value: Any) -> bool:
    length = numeric(alone(value))
    return length is not None and 0 < length < _LONGEST


def _is_bert_large(value: Any, _: str) -> bool:
    if not isinstance(value, dict) or numeric(value.get("vocab_size", _VOCABULARY[0])) not in _VOCABULARY:
        return False
    return all(numeric(value.get(name, size)) == size for name, size in _SIZES.items())


FIXED = (
    Fixed("opt_gradient_clip_norm", "Hyperparameters", "the reference's clip norm, 1.0", _equals(1)),
    Fixed(
        "opt_lamb_learning_rate_decay_poly_power", "Hyperparameters", "the reference's linear decay, power 1",
        _equals(1),
    ),
    Fixed("opt_end_learning_rate", "Hyperparameters", "the reference's end of the decay, 0", _equals(0)),
    Fixed(
        _LENGTH_KEY, "Data Representation", "the reference's 512 tokens; training sequences may be shorter",
        _equals(_LONGEST),
    ),
    Fixed(
        "max_predictions_per_seq", "Data State at Start of Run", "the reference's 76 predictions per sample",
        _equals(76),
    ),
    Fixed(
        f"{_OUR_PREFIX}clip_mode", _CLIP_SECTIONS,
        "clipping of the whole gradient, before or after the all-reduce", _one_of("before", "after"),
    ),
    Fixed(
        f"{_OUR_PREFIX}compression", "Numerical formats",
        "gradients in a pre-approved format, such as fp64, fp32, tf32, fp16, bfloat16, int8, int4, and fp8 from 2.0 on",
        _is_approved_format,
    ),
    Fixed(f"{_OUR_PREFIX}sync_method", "Closed Division", "a sum of gradients in every step, as in the reference",
          _one_of("every_step")),
    Fixed(f"{_OUR_PREFIX}loss_normalize", "Loss function", "a mean on each rank, as in the reference",
          _one_of("rank")),
    Fixed(f"{_OUR_PREFIX}ema_decay", "Hyperparameters", "an evaluation of the trained weights, not of their average",
          _equals(0)),
    Fixed(f"{_OUR_PREFIX}hidden_dropout", "Graph Definition", "the reference's dropout, 0.1", _equals(0.1)),
    Fixed(f"{_OUR_PREFIX}attention_dropout", "Graph Definition", "the reference's dropout, 0.1", _equals(0.1)),
    Fixed(f"{_OUR_PREFIX}model", "Graph Definition", "a model with the sizes of BERT-Large", _is_bert_large),
    Fixed(f"{_OUR_PREFIX}balance", "Training Data Order", "samples in random order, assigned to ranks or packed",
          _one_of("none", "planned", "presort", "global_exchange", "packed")),
    Fixed(f"{_OUR_PREFIX}checkpoint", "Pre-training is not allowed", "a start from the reference's checkpoint",
          lambda value, _: value is True),
    Fixed(f"{_OUR_PREFIX}target", "Closed Division", "the target accuracy, 0.72", _equals(0.72)),
)  # fmt: skip


@rule(
    "reference-value", Source(TRAINING_RULES, "Closed Division"),
    "A closed run trains as the reference does, except for the hyperparameters that the rules call tunable",
    "set the reference's value, or submit to the open division",
)  # fmt: skip
def fixed_values_are_the_references(case: Case) -> Checked:
    if not case.closed:
        return
    for fixed in FIXED:
        for event in case.all(fixed.key):
            logged = f"{fixed.key} {shown(event.value)}"
            if fixed.key == _LENGTH_KEY and _may_be_shorter_in_training(event.value):
                reason = "samples for training may be shorter than 512 tokens, samples for evaluation may not"
                yield Gap(f"line {event.line}: {logged}; {reason}", asked=False)
            elif not fixed.is_sound(event.value, case.ruleset):
                yield Fault(event.line, logged, f'{fixed.expected}, by "{fixed.section}"')
    yield from _missing_values(case)


def _missing_values(case: Case) -> Iterator[Gap]:
    """Find keys of the table that the log lacks; no rule asks for them."""
    missing = [fixed.key for fixed in FIXED if not case.all(fixed.key)]
    ours = [fixed.key for fixed in FIXED if fixed.key.startswith(_OUR_PREFIX)]
    taken_out = [key for key in ours if key in missing]
    if taken_out and len(taken_out) < len(ours):
        reason = f"bertbench logs all of its keys, but this log lacks {', '.join(taken_out)}; ask the submitter why"
        yield Gap(reason, asked=False)
        missing = [key for key in missing if key not in taken_out]
    if missing:
        names = (key.removeprefix(_OUR_PREFIX) for key in missing)
        yield Gap(f"the log doesn't give {', '.join(names)}", asked=False)


RULES = (fixed_values_are_the_references,)
