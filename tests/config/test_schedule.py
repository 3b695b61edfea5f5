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


def test_the_end_rate_is_where_the_decay_goes() -> None:
    # the paper's open-division values
    schedule = LearningRate(base=3.93e-4, end=4.95e-5, warmup_steps=82, start_warmup_step=-16, decay_steps=179)
    assert schedule.rate(100) == pytest.approx(4.95e-5 + (3.93e-4 - 4.95e-5) * (1 - 100 / 179))
    assert schedule.rate(179) == schedule.rate(299) == 4.95e-5
