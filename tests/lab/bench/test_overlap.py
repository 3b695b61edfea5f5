"""What `lab overlap` says of two virtual hosts."""

import json

import pytest

from bertbench.cli import main
from lab.bench.network import obstacle
from lab.bench.overlap import MODES


@pytest.mark.slow
@pytest.mark.skipif(obstacle() is not None, reason=obstacle() or "")
def test_bucket_hides_communication_that_before_exposes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "overlap", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    bandwidths = sorted({row["bandwidth_mbit"] for row in rows})
    assert [row["mode"] for row in rows] == list(MODES) * 3
    assert len(bandwidths) == 3
    exposed = {row["mode"]: row["exposed_ms"] for row in rows if row["bandwidth_mbit"] == bandwidths[1]}
    assert exposed["bucket"] < 0.75 * exposed["before"]  # half on a quiet machine: docs/clipping.md
