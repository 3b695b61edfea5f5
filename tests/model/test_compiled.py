"""Compiled pieces, on a CPU and without Inductor: what is compiled, how often, and that it computes the same."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from bertbench.model.bert import Bert, Embeddings
from bertbench.model.compiled import compile_pieces, compiler_obstacle, configure_compiler
from bertbench.model.loss import LossSums, Scores
from tests.compiling import compiled_by
from tests.model.test_compiled_layer import SHAPE, batch_of


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def counter() -> Iterator[CompileCounter]:
    """Count the graphs that torch.compile creates."""
    with compiled_by(CompileCounter()) as graphs:
        yield graphs


def test_a_batch_with_as_many_tokens_as_the_hidden_size_is_not_compiled_separately(counter: CompileCounter) -> None:
    model = Bert(SHAPE)
    compile_pieces(model)
    for tokens in (24, 40, 72, 13):  # as the hidden size, as the feed-forward size, as query, key and value
        for layer in model.layers:
            hidden_TD = layer.before_attention(torch.randn(tokens, 24))
            layer.after_attention(hidden_TD[:, :24], torch.randn(tokens, 24))
    assert counter.frame_count == 2


@pytest.mark.slow
def test_joined_layers_compile_once_for_all_layers_and_sizes(counter: CompileCounter) -> None:
    model = Bert(SHAPE)
    compile_pieces(model)
    for samples, length in ((2, 9), (3, 12)):
        batch = batch_of(samples, length)
        assert isinstance(model.loss_sums(batch.inputs, batch.labels), LossSums)
    assert counter.frame_count == 8, "embeddings, first and last piece, between, head, pooler, pairs, their loss"
    assert isinstance(model(batch.inputs), Scores), "an evaluation"


def test_the_compiler_is_set_up_before_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch._inductor.config.patch(compile_threads=32):
        seen: list[int] = []

        def tried(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
            seen.append(torch._inductor.config.compile_threads)
            return function

        monkeypatch.setattr(torch, "compile", tried)
        assert compiler_obstacle(torch.device("cpu")) is None
        assert seen == [1], "32 compiling processes on every rank"


def test_without_a_compiler_one_line_says_so() -> None:
    torch._dynamo.reset()
    with torch._inductor.config.patch({"cpp.cxx": (None, "/nowhere/g++"), "fx_graph_cache": False}):
        found = compiler_obstacle(torch.device("cpu"))
    assert re.fullmatch(r"[^\n]*No working C[+][+] compiler found[^\n]*", found or "")


def test_inductor_gets_one_program_where_cxx_names_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "env SAID='two words' sh -c 'echo \"$SAID\" \"$1\"' g++")
    with torch._inductor.config.patch({"cpp.cxx": torch._inductor.config.cpp.cxx}):
        configure_compiler()
        program = torch._inductor.config.cpp.cxx[1]
    assert Path(program).name == "g++"
    assert subprocess.run([program, "-c"], capture_output=True, text=True, check=True).stdout == "two words -c\n"


def test_an_option_that_torch_dropped_is_reported_and_doesn_t_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._dynamo, "config", object())
    reason = compiler_obstacle(torch.device("cpu"))
    assert reason
    assert reason.startswith("'object' object has no attribute 'recompile_limit'")  # Python 3.13 adds to it


def test_compiled_token_types_have_no_additions_into_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with torch.profiler.profile() as profile:
        Embeddings(SHAPE)(*torch.tensor([[5, 3, 28], [0, 1, 0], [0, 1, 2]])).sum().backward()
    lookups = next(event.count for event in profile.key_averages() if event.key == "aten::embedding_dense_backward")
    assert lookups == 2, "words and positions"
