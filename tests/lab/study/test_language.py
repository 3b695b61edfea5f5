"""The made-up language, and runs that learn it: what a seed fixes, where they end, starts, floors, compression."""

import math

import numpy as np
import pytest
import torch

from bertbench.common.errors import ConfigError
from bertbench.distributed.world import World
from lab.study.engine import TrialOutcome
from lab.study.language import Language
from lab.study.language_run import initial_language_model, masked_accuracy, run_on_ranks, run_setting
from tests.lab.study.settings import setting
from tests.ranks import run_ranks


def test_a_batch_is_the_same_however_many_ranks_share_it() -> None:
    language = Language(words=7, followers=2, length=8, masked=3)
    alone, apart = (language.shares(np.random.default_rng(3), 6, ranks) for ranks in (1, 3))
    assert len(apart) == 3
    assert torch.equal(alone[0].batch.tokens_T, torch.cat([share.batch.tokens_T for share in apart]))
    assert torch.equal(alone[0].batch.masked_labels_M, torch.cat([share.batch.masked_labels_M for share in apart]))
    offsets = [16 * rank + share.batch.masked_at_M for rank, share in enumerate(apart)]
    assert torch.equal(alone[0].batch.masked_at_M, torch.cat(offsets))
    assert (alone[0].batch.tokens_T[alone[0].batch.masked_at_M] == 0).all(), "the mask stands there"
    assert {share.part.masked_lm_weight for share in alone + apart} == {1 / 18}


def test_a_word_follows_from_the_one_before_except_where_a_half_is_unrelated() -> None:
    language = Language(words=31, followers=2, length=8, masked=1)
    words_SN, unrelated_S = language.sequences(np.random.default_rng(1), 500)
    seen: dict[int, set[int]] = {}
    for place in (1, 2, 3, 5, 6, 7):
        for before, after in zip(words_SN[:, place - 1], words_SN[:, place], strict=True):
            seen.setdefault(int(before), set()).add(int(after))
    assert max(map(len, seen.values())) == 2
    joined = [int(after) in seen[int(before)] for before, after in words_SN[:, 3:5]]
    assert all(np.array(joined)[unrelated_S == 0])
    assert np.mean(np.array(joined)[unrelated_S == 1]) < 0.2  # 2 of 30 by chance


def untimed(outcome: TrialOutcome) -> tuple[object, ...]:
    return outcome.samples, outcome.accuracy, outcome.clipped, outcome.clipped_steps


def test_a_run_crosses_the_target_between_two_evaluations_and_depends_on_its_seed_alone() -> None:
    clipped = setting(mode="before", ranks=4, max_norm=0.1, optimizer__learning_rate=0.03)
    found = [run_setting(clipped, seed) for seed in (1, 1, 2, 3, 4)]
    assert untimed(found[0]) == untimed(found[1])
    assert len(set(map(untimed, found))) > 2
    assert any(outcome.samples is not None and outcome.samples % 8 for outcome in found), "between two steps"
    assert all(outcome.seconds > 0 for outcome in found)
    assert run_setting(clipped, 1, 8.0).samples is None, "stopped before an evaluation"


def test_a_wrong_number_of_buckets_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"bucket_mb 0.002 results in 2 buckets for this model, expected 4"):
        run_setting(setting(mode="bucket", buckets=4), 1)


def test_two_real_ranks_need_the_samples_of_virtual_ones_and_compressed_gradients_need_others() -> None:
    found = run_ranks(2, compressed)[0]
    alone = run_setting(setting(mode="after", ranks=2, max_norm=0.1), 1)
    assert found[0].samples == pytest.approx(alone.samples, rel=1e-3)  # sums in another order
    assert found[0].accuracy == pytest.approx(alone.accuracy, abs=1e-6)
    assert len({outcome.samples for outcome in found}) > 1, "of 40 words, int8's small errors may move none"


def compressed(world: World) -> list[TrialOutcome]:
    ways = [
        setting(technique=words, mode="after", ranks=2, max_norm=0.1)
        for words in ("every_step", "int8", "topk share=0.2")
    ]
    return [run_on_ranks(world, way, 1, math.inf) for way in ways]


def test_all_seeds_start_from_one_checkpoint() -> None:
    start = {"learning_rate": 0.01, "batch": 8, "accuracy": 0.15, "max_samples": 400}
    from_it = setting(start=start)
    first, second = (initial_language_model(from_it, seed) for seed in (1, 2))
    run_setting(from_it, 3)
    third = initial_language_model(from_it, 3)
    for others in zip(first.parameters(), second.parameters(), third.parameters(), strict=True):
        assert torch.equal(others[0], others[1])
        assert torch.equal(others[0], others[2]), "a run trains a copy"
    assert masked_accuracy(first, from_it.held_out()) >= 0.15
    with pytest.raises(ConfigError, match=r"accuracy 0\.9 wasn't reached within 400 samples at hidden size 8"):
        initial_language_model(setting(start={**start, "accuracy": 0.9}), 1)


def test_a_run_continues_at_the_floor_after_its_decay() -> None:
    short = {"decay_samples": 80, "evaluation__target": 0.99, "optimizer__learning_rate": 0.03}
    ended = run_setting(setting(max_samples=80, **short), 1)
    still, moving = (run_setting(setting(max_samples=240, floor=floor, **short), 1) for floor in (0.0, 0.5))
    assert still.accuracy == ended.accuracy, "a rate of 0 leaves the weights"
    assert moving.accuracy != ended.accuracy
