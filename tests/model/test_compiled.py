"""Compiled pieces, on a CPU and without Inductor: what is compiled, how often, and that it computes the same."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from bertbench.model.bert import Bert
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


@pytest.mark.slow
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
        assert isinstance(model.loss_sums(*batch.inputs, batch.labels), LossSums)
    assert counter.frame_count == 8, "embeddings, first and last piece, between, head, pooler, pairs, their loss"
    assert isinstance(model(*batch.inputs), Scores), "an evaluation"


def test_without_a_compiler_one_line_says_so() -> None:
    torch._dynamo.reset()
    with torch._inductor.config.patch({"cpp.cxx": (None, "/nowhere/g++"), "fx_graph_cache": False}):
        found = compiler_obstacle(torch.device("cpu"))
    assert found
    assert "\n" not in found


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
    assert "recompile_limit" in (compiler_obstacle(torch.device("cpu")) or "")
