"""The study of batch sizes trains with the hyper-parameters that `scale_from_batch` derives from its smallest batch."""

import json

import pytest

from bertbench.config.load import load_system
from lab.study.definition import STUDIES, Configuration, read_definition
from lab.study.language_run import read_setting

DEFINITION = read_definition(STUDIES / "batch.json")
SCALED = [configuration for configuration in DEFINITION.configurations() if configuration.name != "batch_32"]


@pytest.mark.parametrize("configuration", SCALED, ids=lambda configuration: configuration.name)
def test_hyperparameters_follow_the_products_rule(configuration: Configuration) -> None:
    _, batch, rule = configuration.name.split("_")
    base = DEFINITION.setting["optimizer"]
    tuned = {name: json.dumps(base[name]) for name in ("learning_rate", "beta1", "beta2", "epsilon")}
    system = load_system(
        "cpu_demo",
        [
            "optimizer.name=adam", "optimizer.ema_decay=0", f"data.global_batch_size={batch}",
            f"evaluation.interval_samples={batch}", "scale_from_batch=32", f"scale_rule={rule}",
            "schedule.end_learning_rate=0", *(f"optimizer.{name}={value}" for name, value in tuned.items()),
        ],
    )  # fmt: skip
    setting = read_setting(DEFINITION.setting, configuration.settings)
    assert setting.global_batch_size == int(batch)
    for name in tuned:
        assert getattr(setting.optimizer, name) == pytest.approx(getattr(system.optimizer, name), rel=1e-9)
