import json

import pytest
import torch

from bertbench.cli import main
from bertbench.common.progress import Progress
from bertbench.model.shape import BertShape
from lab.bench import optim as bench

TINY = BertShape(vocab_size=13, hidden_size=6, layers=1, attention_heads=2, feed_forward_size=7, max_positions=8)


def test_the_bench_times_both_optimisers_and_says_how_lamb_was_computed() -> None:
    no_compiler = {"cpp.cxx": (None, "/nowhere/g++"), "fx_graph_cache": False}
    torch._dynamo.reset()
    with torch._inductor.config.patch(no_compiler):
        times = bench.measure(TINY, torch.device("cpu"), rounds=2, foreach=True, progress=Progress(False))
    # embeddings 78 + 48 + 12 + 12, layer 126 + 42 + 12 + 49 + 48 + 12, masked-LM head 42 + 12 + 13, pooler 42, pairs 14
    assert times.parameters == 562
    assert times.lamb_arithmetic.startswith(f"{times.lamb_plain_arithmetic} (")
    assert "No working C++ compiler found" in times.lamb_arithmetic
    assert min(times.adamw_fused_ms, times.lamb_ms, times.lamb_plain_ms, times.lamb_foreach_ms or 0) > 0
    assert times.peak_memory_gb > 0.05


def test_the_bench_times_muon() -> None:
    means = bench.measure_others(TINY, torch.device("cpu"), 1, ["muon"], Progress(False))
    assert set(means) == {"muon"}
    assert means["muon"] > 0


@pytest.mark.slow
def test_the_command_prints_the_fields_that_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "optim", "--json", "--system", "cpu_demo", "--rounds", "1"]) == 0
    assert {"parameters", "adamw_fused_ms", "lamb_ms", "lamb_plain_ms", "peak_memory_gb"} <= set(
        json.loads(capsys.readouterr().out)
    )
