"""Rules about the closed division: one table of the keys whose values it fixes, and what missing keys leave unknown.

Keys of mlperf-logging and of published logs come first; only logs of bertbench have those that begin with bertbench_.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from compliance.finding import Breach, Breaches, Case, Rule
from compliance.record import shown
from compliance.run import alone, numeric

_HYPERPARAMETERS = "training_rules.adoc: hyper-parameters and optimizers"
_OWN = "bertbench_"
# BERT-large, and what Hugging Face's configurations call its sizes
_SIZES = {"layers": 24, "hidden_size": 1024, "attention_heads": 16, "feed_forward_size": 4096, "max_positions": 512}
_CALLED = {
    "layers": "hidden_layers", "feed_forward_size": "intermediate_size", "max_positions": "max_position_embeddings"
}  # fmt: skip
_VOCABULARY = range(30_522, 30_529)  # as published, and padded to whole tiles of 8
_BEFORE_NAMES = re.compile("(opt_|optimizer_|lamb_|bert_|model_|num_)+")


_Sound = Callable[[Any], bool]


class _Fixed(NamedTuple):
    """A key's fixed value: `sound` takes its value; without the key, `topic` is unknown, if it has one.

    `others` are its names in other logs, which may begin as in `_BEFORE_NAMES`.
    """

    topic: str
    expected: str
    sound: _Sound
    others: tuple[str, ...] = ()


def _equal(reference: float) -> _Sound:
    return lambda value: (found := numeric(alone(value))) is not None and math.isclose(found, reference, rel_tol=1e-6)


def _one_of(*allowed: str) -> _Sound:
    return lambda value: str(value).lower() in allowed


FIXED = {
    "opt_gradient_clip_norm": _Fixed(
        "clip norm", "clip norm 1.0", _equal(1),
        ("max_grad_norm", "max_gradient_norm", "clip_norm", "clip_grad_norm", "clip_grad", "gradient_clipping"),
    ),
    "opt_lamb_learning_rate_decay_poly_power": _Fixed(
        "power of the decay", "decay power 1", _equal(1), ("poly_power", "lr_decay_power")
    ),
    "opt_end_learning_rate": _Fixed("end of the decay", "end learning rate 0", _equal(0), ("min_lr",)),
    "max_sequence_length": _Fixed(
        "sequence length", "512 tokens", _equal(512),
        ("max_seq_length", "max_seq_len", "sequence_length", "seq_length", "seq_len"),
    ),
    "max_predictions_per_seq": _Fixed(
        "predictions a sample", "76 predictions a sample", _equal(76), ("max_predictions", "max_preds_per_seq")
    ),
    f"{_OWN}clip_mode": _Fixed(
        "clip mode", "clipping the whole gradient, before or after the all-reduce", _one_of("before", "after")
    ),
    f"{_OWN}compression": _Fixed(
        "compression", "no compression, or fp16 or bf16", _one_of("none", "fp16", "bf16"), ("gradient_compression",)
    ),
    f"{_OWN}sync_method": _Fixed("synchronisation", "gradients summed in every step", _one_of("every_step")),
    f"{_OWN}loss_normalize": _Fixed("normalisation of the loss", "a mean on each rank", _one_of("rank")),
    f"{_OWN}ema_decay": _Fixed(
        "average of the weights", "evaluating the weights, no average of them", _equal(0), ("ema_decay",)
    ),
    f"{_OWN}hidden_dropout": _Fixed("dropout", "dropout 0.1", _equal(0.1), ("hidden_dropout", "hidden_dropout_prob")),
    f"{_OWN}attention_dropout": _Fixed(
        "dropout of attention", "dropout 0.1", _equal(0.1), ("attention_dropout", "attention_probs_dropout_prob")
    ),
    f"{_OWN}model": _Fixed("model", "BERT-large, by its sizes", lambda value: isinstance(value, dict)),
    "vocab_size": _Fixed("", "BERT's vocabulary", lambda value: numeric(value) in _VOCABULARY),
    "hidden_act": _Fixed("", "GELU", lambda value: "gelu" in str(value).lower()),
    "masked_lm_prob": _Fixed("", "15 % of the tokens", _equal(0.15)),
    **{one: _Fixed("", f"{size:,} {one}", _equal(size), (_CALLED.get(one, one),)) for one, size in _SIZES.items()},
    f"{_OWN}balance": _Fixed(
        "order of the data", "a random order, dealt or packed",
        _one_of("none", "planned", "presort", "global_exchange", "packed"),
    ),
    f"{_OWN}checkpoint": _Fixed("initial weights", "the reference's checkpoint", lambda value: value is True),
    f"{_OWN}target": _Fixed("target", "accuracy 0.72", _equal(0.72), ("target_accuracy", "target_mlm_accuracy")),
}  # fmt: skip

# Names of files, which may change in a run: phase 1 trains on 128 tokens; the reference starts from model.ckpt-28252.
_FILES = {
    "data_file": _Fixed(
        "", "training data of 512 tokens", lambda name: not re.search("(?i)phase_?1|seq_?(len)?_?128|eval", str(name))
    ),
    "init_checkpoint": _Fixed(
        "", "the reference's checkpoint",
        lambda name: not re.search(r"(?i)(step|iter|epoch|run|ckpt)[-_]?(?!28252\b)\d", str(name)),
    ),
}  # fmt: skip
_ALL = FIXED | _FILES
_NAMES = {name: key for key, fixed in _ALL.items() for name in (key, _BEFORE_NAMES.sub("", key), *fixed.others)}


@lru_cache(maxsize=1024)
def _key(name: str) -> str | None:
    """Return the fixed key that a name stands for."""
    name = re.sub(r"\W+", "_", name.lower())
    return _NAMES.get(name) or _NAMES.get(_BEFORE_NAMES.sub("", name))


def _reference(case: Case) -> Breaches:
    if not case.closed:
        return
    stated = defaultdict(list)
    for event in case.log.events:
        pending = [(event.key, event.value)]
        for name, value in pending:  # it grows
            pending += value.items() if isinstance(value, dict) else ()
            if key := _key(name):
                stated[key].append((event.line, name, value))
    if case.ruleset == "0.7.0":  # it had other targets
        stated[f"{_OWN}target"].clear()
    for key, found in stated.items():
        for line, name, value in found:
            if not _ALL[key].sound(value) and (_ALL[key].topic or not isinstance(value, list)):
                expected = f"{_ALL[key].expected}, as the reference has it"
                yield Breach(line, f"{name} {shown(value)}", expected, "warning" if key in _FILES else None)
    if case.first("weights_initialization"):
        stated[f"{_OWN}checkpoint"].append((0, "", None))
    unknown = [fixed.topic for key, fixed in FIXED.items() if fixed.topic and not stated[key]]
    own = [key for key in FIXED if key.startswith(_OWN)]
    missing = [key for key in own if not case.first(key)]
    if 0 < len(missing) < len(own):
        yield Breach(None, f"no {', '.join(missing)}", f"them beside other {_OWN} keys", "warning")
    if unknown:
        case.skip("reference-value", f"not in the log: {', '.join(unknown)}")


RULES = (
    Rule(
        "reference-value",
        "Values that the closed division fixes equal the reference's (keys left out, names of files: warning)",
        _HYPERPARAMETERS, "error",
        "set the reference's value, or submit to the open division", _reference,
    ),
)  # fmt: skip
