from dataclasses import replace

import pytest

from bertbench.config.optimizer import LearningRate


def test_warm_up_rises_from_its_start_step_and_decay_is_not_shifted() -> None:
    schedule = LearningRate(base=1.0, end=0.0, warmup_steps=4, start_warmup_step=0, decay_steps=10)
    rates = [schedule.rate(step) for step in (0, 1, 3, 4, 5, 10, 11)]
    assert rates == pytest.approx([0.0, 0.25, 0.75, 0.6, 0.5, 0.0, 0.0])


def test_a_negative_start_begins_with_a_rate() -> None:
    # RCP at GBS 8,192: warm-up 287 from step -76
    schedule = LearningRate(base=2.88293e-3, end=0.0, warmup_steps=287, start_warmup_step=-76, decay_steps=600)
    assert schedule.rate(0) == pytest.approx(2.88293e-3 * 76 / 287)
    assert schedule.rate(210) == pytest.approx(2.88293e-3 * 286 / 287)
    assert schedule.rate(211) == pytest.approx(2.88293e-3 * (1 - 211 / 600))


def test_the_published_decay_is_counted_from_step_82_and_its_steps_from_1() -> None:
    # published runs of arXiv 2402.02447: the ramp ends at step 66, where (66 - 82) / (179 - 82) gives more than base
    published = LearningRate(
        base=3.9299421615882676e-4, end=4.94549100544884e-5, warmup_steps=82, start_warmup_step=-16, decay_steps=179,
        decay_from_step=82,
    )  # fmt: skip
    from_one = replace(published, first_step=1)
    assert published.rate(66) == pytest.approx(4.497e-4, rel=1e-3)
    assert from_one.rate(66) == pytest.approx(4.461e-4, rel=1e-3)
    assert published.rate(65) == pytest.approx(3.9299421615882676e-4 * 81 / 82)
    assert [from_one.rate(step) for step in range(200)] == [published.rate(step + 1) for step in range(200)]
    assert published.rate(82) == published.base
    assert published.rate(179) == from_one.rate(178) == published.end
    from_zero = replace(published, decay_from_step=0)
    total, total_from_zero = (sum(map(schedule.rate, range(179))) for schedule in (published, from_zero))
    assert total / total_from_zero == pytest.approx(1.31, abs=0.01)


def test_the_rates_that_describe_a_schedule_are_at_its_own_steps() -> None:
    schedule = LearningRate(1.0, 0.5, warmup_steps=4, start_warmup_step=-1, decay_steps=10, decay_from_step=4)
    # 1/4, then 1 + 1/6 of the fall ahead of step 4, the base there, and half of it from step 10 on
    assert schedule.rates_by_step(13) == pytest.approx({0: 0.25, 3: 1 + 0.5 / 6, 4: 1.0, 10: 0.5, 12: 0.5})
    assert list(schedule.rates_by_step(9)) == [0, 3, 4, 8]


def test_the_decay_ends_at_the_end_rate() -> None:
    # the paper's values, counted from step 0
    schedule = LearningRate(base=3.93e-4, end=4.95e-5, warmup_steps=82, start_warmup_step=-16, decay_steps=179)
    assert schedule.rate(100) == pytest.approx(4.95e-5 + (3.93e-4 - 4.95e-5) * (1 - 100 / 179))
    assert schedule.rate(179) == schedule.rate(299) == 4.95e-5
