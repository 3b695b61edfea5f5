"""The seconds of each method of the paper, compared with forecasts and published results."""

from itertools import pairwise

import pytest

from bertbench.config import load_system
from bertbench.plan.forecast import forecast_run
from lab.bench.ablation import CHANGES, ablations
from tests.conftest import Answer


def test_each_row_is_the_forecast_of_its_settings_and_its_difference_from_the_first() -> None:
    rows = ablations()
    assert [row.change for row in rows] == [*CHANGES]
    everything = 60 * forecast_run(load_system("dgxa100_n128_open")).range.middle_min
    for row in rows:
        forecast = forecast_run(load_system("dgxa100_n128_open", row.settings))
        assert row.seconds == 60 * forecast.range.middle_min
        assert row.more_s == pytest.approx(row.seconds - everything)
        assert row.low_s < row.seconds < row.high_s
        assert row.more_low_s <= row.more_s <= row.more_high_s


def test_methods_that_need_more_time_without_them_come_in_the_order_that_the_page_states(answer: Answer) -> None:
    more = {row["change"]: row["more_s"] for row in answer("lab", "ablation")}
    ordered = (
        "bertbench's `planned` balance", "all methods", "strata without sorting in the node",
        "sorting in the node without strata", "clipping before the all-reduce", "no load balance",
        "LAMB at the same batch", "none of the three, same batch",
    )  # fmt: skip
    assert [more[name] < more[following] for name, following in pairwise(ordered)] == [True] * 7


def test_lamb_needs_the_samples_of_nvidias_published_run_at_this_batch() -> None:
    samples = {row.change: row.samples for row in ablations()}
    assert samples["LAMB at the same batch"] == 5_468_895
    assert samples["all methods"] == 2_938_464
