import pytest
import torch

from bertbench.model.shape import BertShape
from tests.conftest import Answer

TINY = BertShape(vocab_size=13, hidden_size=6, layers=1, attention_heads=2, feed_forward_size=7, max_positions=8)


def test_the_bench_times_all_optimizers_and_says_how_lamb_was_computed(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.bench.update.BertShape", lambda: TINY)
    no_compiler = {"cpp.cxx": (None, "/nowhere/g++"), "fx_graph_cache": False}
    torch._dynamo.reset()
    with torch._inductor.config.patch(no_compiler):
        found = answer("lab", "update", "--rounds", 2, "--also", "muon")
    arithmetic = found["arithmetic"]
    assert arithmetic["lamb"].startswith("torch's multi-tensor operations (")
    assert "No working C++ compiler found" in arithmetic["lamb"]
    assert [*arithmetic] == ["adamw_fused", "lamb", "muon"]
    assert all(found[f"{name}_ms"] > 0 for name in arithmetic)
    assert found["parameters"] == 562
    assert found["peak_memory_gb"] > 0.05
    assert found["machine"]
