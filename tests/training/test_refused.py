"""Ways to synchronise, to compress and to deal that can't be combined are refused in one line."""

from re import escape

import pytest

from bertbench.common.errors import ConfigError
from tests.conftest import Tiny

ALONE, DELAYED, MEASURED = "sync.method=local_sgd", "sync.method=delayed", "launch.rank_speeds=auto"
NOT_COMPRESSED = (
    "communication.hierarchical=true", "optimizer.sharded=true", "precision.compute=fp16", DELAYED,
    "sync.method=diloco",
)  # fmt: skip


@pytest.mark.parametrize(("settings", "named"), [
    ((DELAYED, "communication.compression=powersgd"), "can't be delayed"),
    ((DELAYED, "communication.compression=fp16"), "communication.compression fp16 exchanges twice in a step"),
    ((DELAYED, "optimizer.sharded=true"), "optimizer.sharded"),
    ((ALONE, "optimizer.sharded=true"), "optimizer.sharded"),
    ((ALONE, "precision.compute=fp16"), "precision.compute fp16 goes with sync.method every_step only"),
    ((ALONE, "optimizer.ema_decay=0.9"), "optimizer.ema_decay 0.9 doesn't go with weights that ranks train alone"),
    ((ALONE, "communication.compression=bf16"), "communication.compression bf16 doesn't go with"),
    ((ALONE, "parallel.fully_shard=true"), "one rank a model"),
    (("launch.rank_speeds=[1.0]",), "has 1 speeds for 2 ranks; give one a rank, or auto"),
    ((MEASURED, "parallel.tensor=2", "model.feed_forward_size=22", "clip.mode=after"), "belongs to whole models"),
    ((MEASURED, "data.balance=none"), "set it to planned, or leave launch.rank_speeds out"),
    ((MEASURED, "data.equal_counts=true"), "data.equal_counts true doesn't go with launch.rank_speeds"),
    *(
        ((f"communication.compression={name}", setting), f"communication.compression {name}")
        for name in ("int8", "topk")
        for setting in NOT_COMPRESSED
    ),
])  # fmt: skip
def test_what_can_not_be_combined_is_refused_in_one_line(tiny: Tiny, settings: tuple[str, ...], named: str) -> None:
    with pytest.raises(ConfigError, match=escape(named)) as caught:
        tiny(*settings)
    assert len(str(caught.value).splitlines()) == 1
