"""A small study of the made-up language, which tests change."""

import json
from typing import Any

from lab.study.definition import Definition
from lab.study.language_run import LanguageSetting, read_setting

SETTING: dict[str, Any] = {
    "model": {
        "vocab_size": 7, "hidden_size": 8, "layers": 1, "attention_heads": 2, "feed_forward_size": 11,
        "max_positions": 8, "hidden_dropout": 0.0, "attention_dropout": 0.0,
    },
    "words": {"followers": 2, "masked": 1, "held_out": 40},
    "optimizer": {"name": "adam", "learning_rate": 1e-2},
    "decay_samples": 480,
    "max_samples": 240,
    "bucket_mb": 0.002,
    "global_batch_size": 8,
    "evaluation": {"target": 0.15, "interval_samples": 16},
}  # fmt: skip
STUDY: dict[str, Any] = {
    "question": "Do clip modes differ at all?",
    "setting": SETTING,
    "arms": {mode: {"mode": mode} for mode in ("after", "before", "bucket")},
    "space": {
        "optimizer.learning_rate": {"low": 0.01, "high": 0.03},
        "max_norm": {"low": 0.05, "high": 0.1},
        "optimizer.beta1": {"low": 0.1, "high": 0.2, "one_minus": True},
    },
    "tuning": {"trials": 2, "patience": 2.0},
    "comparisons": [{"arm": "before", "against": "after"}, {"arm": "bucket", "against": "before"}],
    "equal_values": True,
    "seeds": 2,
}


def defined(**changes: object) -> Definition:
    """Return the study with changes."""
    return Definition.model_validate_json(json.dumps({**STUDY, **changes}))


def setting(**changes: object) -> LanguageSetting:
    """Return the setting with changes; `__` stands for a dot."""
    return read_setting(SETTING, {name.replace("__", "."): value for name, value in changes.items()})
