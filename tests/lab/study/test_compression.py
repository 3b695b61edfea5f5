"""Compressed gradients by samples to target: real ranks train as virtual ones do."""

import json
import math

import pytest

from bertbench.config.optimizer import OptimizerSettings
from bertbench.distributed.world import World
from lab.paths import STUDIES
from lab.study.compression import ARMS, CompressionDefinition, run_arm, run_trial
from lab.study.definition import read_study
from lab.study.engine import Outcome
from lab.study.language_study import initial_model
from lab.study.language_trial import to_target
from lab.study.virtual_ranks import VirtualRanks
from tests.lab.study.test_ranks import SMALL
from tests.ranks import run_ranks

OF_CLIP = ("space", "tuning", "stopping")


def defined(**changes: object) -> CompressionDefinition:
    common = {name: value for name, value in SMALL.items() if name not in OF_CLIP}
    return CompressionDefinition.model_validate_json(
        json.dumps({**common, "max_norm": 0.1, "topk_share": 0.2, **changes})
    )


def test_two_ranks_in_full_need_the_samples_of_virtual_ones_and_compressed_ones_need_others() -> None:
    found = run_ranks(2, trials, defined())[0]
    full = found[0]
    definition = defined()
    model = initial_model(definition.model, 1)
    virtual = VirtualRanks(model, "after", definition.max_norm, 2, definition.bucket_mb)
    alone = to_target(definition, definition.optimizer, model, virtual.reduce, 2, 1)
    assert full.samples == pytest.approx(alone.samples, rel=1e-3)  # sums in another order
    assert full.accuracy == pytest.approx(alone.accuracy, abs=1e-6)
    assert len({(outcome.samples, outcome.accuracy) for outcome in found}) == len(ARMS)


def trials(world: World, definition: CompressionDefinition) -> list[Outcome]:
    return [run_trial(world, definition, arm.choices["compression"], 1, math.inf) for arm in ARMS]


def test_an_arm_starts_ranks_of_its_own() -> None:
    outcome = run_arm(defined(evaluation={"target": 0.9, "interval_samples": 16}), ARMS[0], {}, 1, 16.0)
    assert outcome.samples is None
    assert 0 < outcome.accuracy < 0.9, "two steps of 8 samples, then an evaluation"


def test_the_study_that_comes_with_the_project_is_whole() -> None:
    definition = read_study(STUDIES / "compression.json", CompressionDefinition)
    assert isinstance(definition.optimizer, OptimizerSettings)
    assert definition.global_batch_size % 2 == 0
