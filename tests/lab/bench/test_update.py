import pytest

from bertbench.model.shape import BertShape
from tests.conftest import Answer

TINY = BertShape(vocab_size=13, hidden_size=6, layers=1, attention_heads=2, feed_forward_size=7, max_positions=8)


def test_the_bench_times_all_optimizers_and_says_how_lamb_was_computed(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.bench.update.BertShape", lambda: TINY)
    found = answer("lab", "update", "--rounds", 2, "--also", "muon")
    arithmetic = found["arithmetic"]
    assert arithmetic["lamb"] == "torch's multi-tensor operations"
    assert [*arithmetic] == ["adamw_fused", "lamb", "muon"]
    assert all(found[f"{name}_ms"] > 0 for name in arithmetic)
    assert found["parameters"] == 562
    assert found["peak_memory_gb"] > 0.05
    assert found["machine"]
