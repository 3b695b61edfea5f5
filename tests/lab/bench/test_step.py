import argparse
import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import pytest
import torch
from torch import Tensor

from bertbench.common.errors import RunError
from bertbench.common.progress import Progress
from bertbench.data.store.columns import Columns
from bertbench.loading.batch import batch_of
from bertbench.model.attention import plain_attention
from bertbench.model.sequences import Sequences
from bertbench.model.shape import SHAPES, BertShape, training_flops
from lab.bench import baselines, peak, stock
from lab.bench import step as bench
from lab.bench.batches import wikipedia_batches
from lab.bench.harness import CPU, Ratio
from lab.bench.step_process import Step, StepProcess, Took
from tests.conftest import Answer, Printed

TINY = BertShape(30_522, 6, 1, 2, 7, 512)
CONTENT = wikipedia_batches(5, 1, seed=2)[0]
ROUNDS = {
    "device": "cpu", "threads": 1, "batch": 2, "rounds": 3, "compile": False, "seed": 1,
    "attention": ["sdpa", "per_sequence"],
}  # fmt: skip


def test_useful_work_of_bert_large_is_the_published_500_gflop_per_sample() -> None:
    batches = wikipedia_batches(64, 3, seed=1)
    work = [training_flops(SHAPES["large"], content.lengths, content.masked.sum()) / 64 for content in batches]
    assert np.mean(work) == pytest.approx(500e9, rel=0.02)


def test_every_batch_has_wikipedias_lengths() -> None:
    for content in wikipedia_batches(64, 3, seed=1):
        assert content.lengths.mean() == pytest.approx(255.8, rel=0.02)
        assert (content.lengths == 512).mean() == pytest.approx(0.234, abs=0.02)
        assert list(content.lengths) == sorted(content.lengths, reverse=True)


def test_baselines_get_the_same_tokens_and_labels_padded() -> None:
    padded, batch = stock.padded(CONTENT), batch_of(CONTENT)
    assert padded["input_ids"].shape == (5, CONTENT.lengths.max())
    assert padded["input_ids"][padded["attention_mask"].bool()].tolist() == batch.tokens_T.tolist()
    assert padded["labels"][padded["labels"] >= 0].tolist() == batch.masked_labels_M.tolist()


def _without_a_gpu(
    query_TKH: Tensor, key_TKH: Tensor, value_TKH: Tensor, sequences: Sequences, dropout: float
) -> Tensor:
    return plain_attention(torch.stack((query_TKH, key_TKH, value_TKH), 1), sequences, dropout)


@pytest.mark.parametrize("baseline", baselines.BASELINES, ids=lambda baseline: baseline.name)
def test_every_baseline_computes_the_loss_of_the_stock_one(
    baseline: baselines.Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(baselines, "flash_kernel", _without_a_gpu)
    # initial weights of 0.02 would make every loss log(30,522)
    shape = BertShape(30_522, 8, 2, 2, 16, 512, hidden_dropout=0.0, attention_dropout=0.0, initializer_range=0.5)
    torch.manual_seed(3)
    model = stock.stock_model(shape)
    expected = model(**stock.padded(CONTENT)).loss
    loss = baselines.baseline_loss(baseline, model, CONTENT, CPU)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_unpadded_attention_drops_as_the_stock_model_does() -> None:
    pytest.importorskip("transformers")
    model = stock.stock_model(BertShape(30_522, 8, 2, 2, 16, 512, hidden_dropout=0.0, attention_dropout=0.3))
    unpadded = next(baseline for baseline in baselines.BASELINES if baseline.name == "masked heads, unpadded")
    first, second = (baselines.baseline_loss(unpadded, model, CONTENT, CPU).item() for _ in range(2))
    assert first != second


def test_the_headline_is_the_ratio_to_the_strongest_unbiased_baseline() -> None:
    lines = bench.program_table(
        [
            bench.MeasuredProgram("small", "fp32", name, 1.0, 1.0, 1.0, 0.1, 1.0, biased, strong, Ratio(*ratio))
            for name, biased, strong, *ratio in (
                ("bertbench", False, False, 1.0),
                ("slower", False, False, 7.0, 6.5, 7.5),
                ("slow", False, False, 6.0, 5.5, 6.5),
                ("sorted", True, False, 4.0),
                ("strong", False, True, 2.5, 2.25, 2.75),
                ("strong, sorted", True, True, 2.0),
            )
        ]
    )
    assert [line.split(" x")[0].split()[-1] for line in lines[1:7]] == ["1.00", "7.00", "6.00", "4.00", "2.50", "2.00"]
    assert lines[-2] == "bertbench is 2.50 x (2.25 to 2.75) as fast as the fastest unbiased baseline, strong"
    assert lines[-1] == "and 6.00 x (5.50 to 6.50) as fast as the fastest unbiased stock variant, slow"


class Here:
    """Stand in for a program in its own process: slow in the first pass, then 1 s per step, or 2 s for a baseline."""

    visits: ClassVar[list[tuple[str, int]]] = []

    def __init__(self, name: str, build: Callable[..., Step], _: int, *arguments: Any) -> None:
        self._name, self._step, self._done = name, build(*arguments), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def step(self, content: Columns) -> Took:
        self._step(content)
        self._done += 1
        self.visits.append((self._name, id(content)))
        return Took(99.0 if self._done <= ROUNDS["rounds"] else 1.0 if self._name == "bertbench" else 2.0, 2**20)


def test_each_baseline_is_paired_with_ours_on_its_batches_after_a_pass_over_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setitem(bench.SHAPES, "tiny", TINY)
    monkeypatch.setattr(bench, "StepProcess", Here)
    monkeypatch.setattr(Here, "visits", [])
    kinds = [baseline for baseline in baselines.BASELINES if baseline.name in (
        "transformers sdpa, padded to the longest", "transformers sdpa, group_by_length", "masked heads, unpadded",
    )]  # fmt: skip
    eager = baselines.BASELINES[0]
    monkeypatch.setattr(bench, "BASELINES", [eager, *kinds])
    results = bench.measure_size("tiny", "fp32", 1e9, argparse.Namespace(**ROUNDS), Progress(False))
    assert [result.name for result in results] == ["bertbench", *(kind.name for kind in kinds)]
    assert [result.biased for result in results] == [False, False, True, False]
    assert [result.unpadded_or_trimmed for result in results] == [False, False, False, True]
    assert [result.samples_per_s for result in results] == [2, 1, 1, 1]
    assert results[1].ours_is == results[3].ours_is == (2, None, None)  # too few rounds for an interval
    for result in results:
        assert result.share_of_gemm == pytest.approx(result.useful_gflops, abs=1e-3)
        assert result.peak_memory_mb == 1
    batches = [content for name, content in Here.visits if name == "bertbench"]
    assert [content for name, content in Here.visits if name == kinds[2].name] == batches[:6]


def remember_or_die(_: torch.device) -> Step:
    """Return what a program's process does: keep 64 MB, then die."""
    kept: list[Tensor] = []

    def step(_: Columns) -> None:
        if kept:
            os._exit(3)
        kept.append(torch.ones(2**24))

    return step


@pytest.mark.slow
def test_each_program_runs_in_its_own_process_whose_memory_is_measured_and_whose_death_is_an_error() -> None:
    with StepProcess("baseline", remember_or_die, 1, CPU) as program:
        took = program.step(CONTENT)
        assert took.seconds > 0
        assert took.memory_bytes >= 2**26
        with pytest.raises(RunError, match=r"baseline: its process ended with code 3; .* choose a smaller --batch"):
            program.step(CONTENT)


def test_the_command_runs_without_an_installed_baseline(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setitem(bench.SHAPES, "small", TINY)
    monkeypatch.setattr(peak, "SQUARE_SIZES", (61,))
    monkeypatch.setattr(bench, "StepProcess", Here)
    found = answer("lab", "step", "--rounds", 1, "--batch", 2, "--dtypes", "bf16")
    assert set(found["machine"]["gemm_gflops"]) == {"bf16"}
    (result,) = found["results"]
    assert {"size": "small", "dtype": "bf16", "name": "bertbench"}.items() <= result.items()
    assert {"real_tokens_per_s", "samples_per_s", "useful_gflops", "share_of_gemm", "peak_memory_mb"} <= set(result)


def test_a_number_format_that_a_cpu_lacks_is_one_clear_error(printed: Printed) -> None:
    assert "--dtypes: unknown 'fp16'; choose from fp32, bf16" in printed("lab", "step", "--dtypes", "fp16", code=2)
