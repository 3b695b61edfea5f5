"""The output of `lab overlap` for two virtual hosts."""

import pytest

from lab.bench.network import network_obstacle
from lab.bench.overlap import MODES, overlap_verdict
from tests.conftest import Answer


def test_a_mode_exposes_less_only_if_its_whole_interval_says_so() -> None:
    ends = ((1.0, 9.0), (-9.0, -1.0), (-1.0, 9.0), (0.0, 9.0), (None, None))
    assert [overlap_verdict(*interval) for interval in ends] == [
        "less",
        "more",
        "not decided",
        "not decided",
        "not decided",
    ]


@pytest.mark.slow
@pytest.mark.skipif(network_obstacle() is not None, reason=network_obstacle() or "")
def test_bucket_hides_communication_that_before_exposes(answer: Answer) -> None:
    rows = answer("lab", "overlap", "--rounds", 9)
    bandwidths = sorted({row["bandwidth_mbit"] for row in rows})
    assert [row["mode"] for row in rows] == list(MODES) * 3
    assert len(bandwidths) == 3
    middle = {row["mode"]: row for row in rows if row["bandwidth_mbit"] == bandwidths[1]}
    assert middle["before"]["less_ms"] is middle["before"]["hidden"] is middle["before"]["verdict"] is None
    assert middle["bucket"]["less_ms"] > 0.25 * middle["before"]["exposed_ms"]  # half on a quiet machine
