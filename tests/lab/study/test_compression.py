"""Compressed gradients by samples to target: real ranks train as virtual ones do, and a stopped study continues."""

import json
import math
from pathlib import Path

import pytest

from bertbench.common.errors import ConfigError
from bertbench.distributed.world import World
from bertbench.optim.options import OptimizerSettings
from lab.paths import STUDIES
from lab.study.compression import ARMS, CompressionDefinition, Row, compare, run_trial
from lab.study.definition import read_study
from lab.study.language_study import initial_model
from lab.study.ranks_trial import to_target
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
    rows = run_ranks(2, trials, defined())[0]
    full = rows[0]
    definition = defined()
    model = initial_model(definition.model, 1)
    virtual = VirtualRanks(model, "after", definition.max_norm, 2, definition.bucket_mb)
    alone = to_target(definition, definition.optimizer, model, virtual.reduce, 2, 1)
    assert full.samples_to_target == pytest.approx(alone.samples, rel=1e-3)  # sums in another order
    assert full.accuracy == pytest.approx(alone.accuracy, abs=1e-6)
    assert len({(row.samples_to_target, row.accuracy) for row in rows}) == len(ARMS)


def trials(world: World, definition: CompressionDefinition) -> list[Row]:
    return [run_trial(world, definition, arm, 1) for arm in ARMS]


def test_a_study_that_continues_repeats_no_run_and_compares_by_pairs(tmp_path: Path) -> None:
    lines = [
        {"arm": arm, "seed": seed, "samples_to_target": samples, "reached": True, "accuracy": 0.2}
        for seed, of_seed in enumerate(((100, 110, 300), (200, 190, 500), (300, 330, 400)), start=1)
        for arm, samples in zip(ARMS, of_seed, strict=True)
    ]
    definition = defined()
    (tmp_path / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows, (byte, _) = compare(definition, 3, tmp_path)
    assert [row.samples_to_target for row in rows] == [line["samples_to_target"] for line in lines]
    # differences 10, -10, 30: mean 10, deviation 20, Student's t for 2 degrees of freedom 4.303
    assert (byte.reference, byte.seeds, byte.difference.mean) == (200, 3, 10)
    assert byte.difference.high - 10 == pytest.approx(4.303 * 20 / math.sqrt(3), rel=1e-3)
    with pytest.raises(ConfigError, match="holds another study"):
        compare(defined(max_norm=0.3), 3, tmp_path)


def test_the_study_that_comes_with_the_project_is_whole() -> None:
    definition = read_study(STUDIES / "compression.json", CompressionDefinition)
    assert isinstance(definition.optimizer, OptimizerSettings)
    assert definition.global_batch_size % 2 == 0
