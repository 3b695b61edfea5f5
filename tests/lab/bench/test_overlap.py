"""What `lab overlap` says of two virtual hosts."""

import pytest

from lab.bench.network import obstacle
from lab.bench.overlap import MODES
from tests.conftest import Answer


@pytest.mark.slow
@pytest.mark.skipif(obstacle() is not None, reason=obstacle() or "")
def test_bucket_hides_communication_that_before_exposes(answer: Answer) -> None:
    rows = answer("lab", "overlap", "--rounds", 9)
    bandwidths = sorted({row["bandwidth_mbit"] for row in rows})
    assert [row["mode"] for row in rows] == list(MODES) * 3
    assert len(bandwidths) == 3
    middle = {row["mode"]: row for row in rows if row["bandwidth_mbit"] == bandwidths[1]}
    assert middle["before"]["less_ms"] is middle["before"]["hidden"] is None
    assert middle["bucket"]["less_ms"] > 0.25 * middle["before"]["exposed_ms"]  # half on a quiet machine
