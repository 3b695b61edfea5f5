import argparse

import pytest
import torch

from bertbench.common.progress import Progress
from bertbench.model.bert import Bert
from bertbench.model.shape import BertShape
from lab.bench import optim as bench
from tests.conftest import Answer

TINY = BertShape(vocab_size=13, hidden_size=6, layers=1, attention_heads=2, feed_forward_size=7, max_positions=8)


def test_the_bench_times_all_optimizers_and_says_how_lamb_was_computed() -> None:
    no_compiler = {"cpp.cxx": (None, "/nowhere/g++"), "fx_graph_cache": False}
    torch._dynamo.reset()
    with torch._inductor.config.patch(no_compiler):
        arguments = argparse.Namespace(rounds=2, also=["muon"])
        times, arithmetic = bench.step_times(Bert(TINY), 562, arguments, Progress(False))
    assert arithmetic["lamb"].startswith(f"{arithmetic['lamb_plain']} (")
    assert "No working C++ compiler found" in arithmetic["lamb"]
    assert [*times] == ["adamw_fused", "lamb", "lamb_plain", "muon"]
    assert all(len(own) == 2 and min(own) > 0 for own in times.values())


@pytest.mark.slow
def test_the_command_prints_the_fields_that_it_promises(answer: Answer) -> None:
    found = answer("lab", "optim", "--system", "cpu_demo", "--rounds", 1)
    assert {"adamw_fused_ms", "lamb_ms", "lamb_plain_ms", "arithmetic", "machine"} <= set(found)
    assert found["parameters"] > 0
    assert found["peak_memory_gb"] > 0.05
