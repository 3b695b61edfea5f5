"""The settings that MLPerf's closed division fixes: closed files are refused for a deviation, and open files aren't."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from bertbench.checkpoint import start
from bertbench.checkpoint.start import check_start
from bertbench.common.errors import ConfigError
from bertbench.config import load_system
from bertbench.loading.inputs import open_data

_RECIPE = (
    '{"vocab_size": 30522, "held_out_fraction": 0.01, "held_out_samples": %s, "max_predictions_per_seq": %s, '
    '"dupe_factor": %s}'
)
DEVIATIONS = {
    "model.layers=2": "closed-model",
    "model.hidden_size=512": "closed-model",
    "model.vocab_size=512": "closed-model",
    "model.max_positions=128": "closed-sequence",
    "model.hidden_dropout=0": "closed-dropout",
    "model.attention_dropout=0.05": "closed-dropout",
    "model.checkpoint=null": "closed-checkpoint",
    f"data.recipe={_RECIPE % (10_000, 20, 10)}": "closed-predictions",
    f"data.recipe={_RECIPE % (9_999, 76, 10)}": "closed-evaluation-set",
    f"data.recipe={_RECIPE % (10_000, 76, 5)}": "closed-samples",
    "data.balance=stratified": "closed-data-order",
    "data.strata_quotas=[18,9,6,15]": "closed-data-order",
    "loss.normalize=global": "closed-loss",
    "optimizer.name=adam": "closed-optimizer",
    "optimizer.ema_decay=0.99": "closed-average",
    "schedule.end_learning_rate=1e-5": "closed-decay",
    "schedule.decay_steps=900": "closed-decay",
    "schedule.decay_from=warmup_steps": "closed-decay",
    "clip.mode=none": "closed-clip",
    "clip.max_norm=5": "closed-clip",
    "clip.parts=each": "closed-clip",
    "evaluation.target=0.5": "closed-target",
    "evaluation.interval_samples=150000": "closed-cadence",  # batch 3,072 wants 175,000
}
LEGAL = [
    "data.balance=none", "data.global_batch_size=4096", "data.gradient_accumulation_steps=2", "clip.mode=before",
    "clip.mode=after", "optimizer.learning_rate=0.003", "optimizer.beta1=0.7", "schedule.max_steps=900",
    "schedule.start_warmup_step=-76", "schedule.first_step=1", "precision.compute=fp16",
    "communication.compression=bf16",
    "evaluation.interval_samples=175000", "schedule.decay_steps=1059",
    f"data.recipe={_RECIPE % (10_000, 76, 10)}",
]  # fmt: skip


@pytest.mark.parametrize(("setting", "rule"), DEVIATIONS.items())
def test_a_closed_file_that_deviates_is_refused_with_the_rule_and_the_open_division_takes_it(
    setting: str, rule: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_system("dgxa100_n8", [setting])
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"--set {setting!r}: ")
    assert rule in line
    assert load_system("dgxa100_n8", [setting, "hardware.division=open"])


def test_the_orders_that_a_refusal_names_are_possible() -> None:
    with pytest.raises(ConfigError) as caught:
        load_system("dgxa100_n8", ["data.balance=stratified"])
    named = str(caught.value).partition("set it to ")[2].partition(", or ")[0].split(" or ")
    assert len(named) > 1
    for order in named:
        assert load_system("dgxa100_n8", [f"data.balance={order}"]).data.balance == order


@pytest.mark.parametrize("setting", LEGAL)
def test_settings_that_the_division_leaves_free_are_free(setting: str) -> None:
    assert load_system("dgxa100_n8", [setting]).hardware.division == "closed"


def test_a_closed_run_is_refused_on_another_evaluation_set(tiny_folder: Path) -> None:
    data = [f"data.path={tiny_folder}", f"data.eval_path={tiny_folder}"]
    with pytest.raises(ConfigError, match="closed-evaluation-set"):
        open_data(load_system("dgxa100_n8", data))
    assert open_data(load_system("dgxa100_n8", [*data, "hardware.division=open"]))


def test_a_closed_run_is_refused_from_another_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = SimpleNamespace(source="TensorFlow checkpoint model.ckpt-28252")
    monkeypatch.setattr(start, "check_weights", lambda *_: opened)
    check_start(load_system("dgxa100_n8"))
    opened.source = "Hugging Face model bert"
    with pytest.raises(ConfigError, match="closed-checkpoint"):
        check_start(load_system("dgxa100_n8"))
    check_start(load_system("dgxa100_n8", ["hardware.division=open"]))
