import argparse
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Self
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from bertbench.common.errors import RunError
from bertbench.common.progress import Progress
from bertbench.data.store.columns import Columns
from bertbench.loading.batch import batch_of
from bertbench.model.attention import plain_attention
from bertbench.model.flops import training_flops
from bertbench.model.sequences import Sequences
from bertbench.model.shape import SHAPES, BertShape
from lab.bench import peak, rivals, stock
from lab.bench import step as bench
from lab.bench.batches import wikipedia_batches
from lab.bench.harness import CPU
from lab.bench.program import Program, Step, Took
from tests.conftest import Answer, Printed

TINY = BertShape(30_522, 6, 1, 2, 7, 512)
CONTENT = wikipedia_batches(5, 1, seed=2)[0]
ONE_ROUND = {"device": "cpu", "threads": 1, "batch": 2, "rounds": 1, "compile": False, "seed": 1}


def test_useful_work_of_bert_large_is_the_published_500_gflop_a_sample() -> None:
    batches = wikipedia_batches(64, 3, seed=1)
    work = [training_flops(SHAPES["large"], content.lengths, content.masked.sum()) / 64 for content in batches]
    assert np.mean(work) == pytest.approx(500e9, rel=0.02)


def test_every_batch_has_wikipedias_lengths() -> None:
    for content in wikipedia_batches(64, 3, seed=1):
        assert content.lengths.mean() == pytest.approx(255.8, rel=0.02)
        assert (content.lengths == 512).mean() == pytest.approx(0.234, abs=0.02)
        assert list(content.lengths) == sorted(content.lengths, reverse=True)


def test_rivals_get_the_same_tokens_and_labels_padded() -> None:
    padded, batch = stock.padded(CONTENT, None), batch_of(CONTENT)
    assert padded["input_ids"].shape == (5, CONTENT.lengths.max())
    assert padded["input_ids"][padded["attention_mask"].bool()].tolist() == batch.tokens_T.tolist()
    assert padded["labels"][padded["labels"] >= 0].tolist() == batch.masked_labels_M.tolist()


def _without_a_gpu(
    query_TKH: torch.Tensor, key_TKH: torch.Tensor, value_TKH: torch.Tensor, sequences: Sequences, dropout: float
) -> torch.Tensor:
    return plain_attention(torch.stack((query_TKH, key_TKH, value_TKH), 1), sequences, dropout)


@pytest.mark.parametrize("rival", rivals.rivals(False, True), ids=lambda rival: rival.name)
def test_every_rival_computes_the_loss_of_the_stock_one(rival: rivals.Rival, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(rivals, "flash_kernel", _without_a_gpu)
    # initial weights of 0.02 would make every loss log(30,522)
    shape = BertShape(30_522, 8, 2, 2, 16, 512, hidden_dropout=0.0, attention_dropout=0.0, initializer_range=0.5)
    torch.manual_seed(3)
    model = stock.stock_model(shape)
    expected = model(**stock.padded(CONTENT, None)).loss
    loss = rivals.rival_loss(rival, model, CONTENT, CPU)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_unpadded_attention_drops_as_the_stock_model_is_told_to() -> None:
    pytest.importorskip("transformers")
    model = stock.stock_model(BertShape(30_522, 8, 2, 2, 16, 512, hidden_dropout=0.0, attention_dropout=0.3))
    unpadded = next(rival for rival in rivals.RIVALS if rival.name == "masked heads, unpadded")
    first, second = (rivals.rival_loss(unpadded, model, CONTENT, CPU).item() for _ in range(2))
    assert first != second


def test_the_headline_is_the_ratio_to_the_strongest_unbiased_rival() -> None:
    lines = bench.table_of(
        [
            bench.Measured("small", "fp32", name, tokens_per_s, 1.0, 1.0, 0.1, 1.0, biased, strong)
            for name, tokens_per_s, biased, strong in (
                ("bertbench", 2400.0, False, False),
                ("slow", 400.0, False, False),
                ("sorted", 600.0, True, False),
                ("strong", 960.0, False, True),
                ("strong, sorted", 1200.0, True, True),
            )
        ]
    )
    assert [line.split()[-2] for line in lines[1:6]] == ["1.00", "6.00", "4.00", "2.50", "2.00"]
    assert lines[-2] == "bertbench is 2.50 x as fast as the strongest unbiased rival, strong"
    assert lines[-1] == "and 6.00 x as fast as the best unbiased stock variant, slow"


class Here:
    """Stand in for a program in a process of its own."""

    def __init__(self, build: Callable[..., Mapping[str, Step]], _: int, *arguments: Any) -> None:
        self._steps = build(*arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def step(self, variant: str, content: Columns) -> Took:
        self._steps[variant](content)
        return Took(1.0, 2**20)


def test_ours_is_measured_beside_the_rivals_and_the_biased_one_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setitem(bench.SHAPES, "tiny", TINY)
    monkeypatch.setattr(bench, "Program", Here)
    arguments = argparse.Namespace(**ONE_ROUND)
    kinds = [rival for rival in rivals.RIVALS if rival.name in (
        "transformers sdpa, padded to the longest", "transformers sdpa, group_by_length", "masked heads, unpadded",
    )]  # fmt: skip
    monkeypatch.setattr(bench, "rivals", lambda *_: kinds)
    results = bench.measure_size("tiny", "fp32", 1e9, arguments, Progress(False))
    assert [result.name for result in results] == ["bertbench", *(kind.name for kind in kinds)]
    assert [result.biased for result in results] == [False, False, True, False]
    assert [result.unpadded_or_trimmed for result in results] == [False, False, False, True]
    for result in results:
        assert result.share_of_gemm == pytest.approx(result.useful_gflops, abs=1e-3)
        assert (result.samples_per_s, result.peak_memory_mb) == (2, 1)  # 2 a batch


def memory_and_death(_: torch.device) -> dict[str, Step]:
    """Return what a program's process does: keep 64 MB, or die."""
    kept: list[torch.Tensor] = []
    return {"keeps": lambda _: kept.append(torch.ones(2**24)), "dies": lambda _: os._exit(3)}


def test_a_program_has_a_process_of_its_own_whose_memory_is_measured_and_whose_death_is_an_error() -> None:
    with Program(memory_and_death, 1, CPU) as program:
        took = program.step("keeps", CONTENT)
        assert took.seconds > 0
        assert took.memory_bytes >= 2**26
        with pytest.raises(RunError, match=r"dies: its process ended with code 3; .* choose a smaller --batch"):
            program.step("dies", CONTENT)


def test_the_first_step_on_a_batch_does_not_count() -> None:
    batches = wikipedia_batches(2, 3, 1)
    program = Mock(step=Mock(side_effect=range(6)))
    arm = bench.Contender(rivals.Rival("slow", ""), program, batches)
    assert [arm.step(number) for number in range(3)] == [1, 3, 5]
    assert [id(step.args[1]) for step in program.step.call_args_list] == [id(batches[at // 2]) for at in range(6)]


def test_the_command_runs_where_no_rival_is_installed(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setitem(bench.SHAPES, "small", TINY)
    monkeypatch.setattr(peak, "_SIZES", (61,))
    monkeypatch.setattr(bench, "Program", Here)
    found = answer("lab", "step", "--rounds", 1, "--batch", 2, "--dtypes", "bf16")
    assert set(found["machine"]["gemm_gflops"]) == {"bf16"}
    (result,) = found["results"]
    assert {"size": "small", "dtype": "bf16", "name": "bertbench"}.items() <= result.items()
    assert {"real_tokens_per_s", "samples_per_s", "useful_gflops", "share_of_gemm", "peak_memory_mb"} <= set(result)


def test_a_number_format_that_a_cpu_lacks_is_one_clear_error(printed: Printed) -> None:
    assert "--dtypes fp16: not on a CPU" in printed("lab", "step", "--dtypes", "fp16", code=2)
