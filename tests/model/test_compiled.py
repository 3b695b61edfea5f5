"""Compiled pieces, on a CPU and without Inductor: what is compiled, how often, and that it computes the same."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from bertbench.model.bert import Bert, Embeddings
from bertbench.model.compiled import compile_pieces, obstacle
from bertbench.model.dropout import plain_dropout
from bertbench.model.loss import cross_entropy_sum, plain_cross_entropy_sum, weighted_loss
from bertbench.model.shape import BertShape

SHAPE = BertShape(
    vocab_size=29, hidden_size=24, layers=2, attention_heads=2, feed_forward_size=40, max_positions=16
)  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> CompileCounter:
    """Count the graphs that torch.compile makes, whatever it is asked to make of them."""
    graphs, original = CompileCounter(), torch.compile

    def compile_counted(function: Any, dynamic: bool = False, fullgraph: bool = False, **_: Any) -> Any:
        return original(function, backend=graphs, dynamic=dynamic, fullgraph=fullgraph)

    monkeypatch.setattr(torch, "compile", compile_counted)
    return graphs


def test_a_batch_of_as_many_tokens_as_the_hidden_size_compiles_nothing_for_itself(counter: CompileCounter) -> None:
    model = Bert(SHAPE)
    compile_pieces(model, "default")
    for tokens in (24, 40, 72, 13):  # as the hidden size, as the feed-forward size, as query, key and value
        for layer in model.layers:
            hidden_TD = layer.before_attention(torch.randn(tokens, 24))
            layer.after_attention(hidden_TD[:, :24], torch.randn(tokens, 24))
    assert counter.frame_count == 2


def test_the_loss_is_one_of_the_pieces_and_stays_the_same(counter: CompileCounter) -> None:
    torch.manual_seed(1)
    model = Bert(SHAPE)
    assert model.cross_entropy_sum is None
    compile_pieces(model, "default")
    labels_M = torch.tensor([3, -100, 28, 0, 5])
    gradients = []
    for loss in (plain_cross_entropy_sum, model.cross_entropy_sum):
        scores_MV = torch.randn(5, 29, generator=torch.Generator().manual_seed(2)).requires_grad_()
        assert loss is not None
        loss(scores_MV, labels_M).backward()
        assert scores_MV.grad is not None
        gradients.append(scores_MV.grad)
    torch.testing.assert_close(*gradients)
    assert counter.frame_count == 1


def test_the_trainer_s_loss_takes_the_compiled_sum() -> None:
    seen: list[int] = []

    def summed(scores_MV: torch.Tensor, labels_M: torch.Tensor) -> torch.Tensor:
        seen.append(len(labels_M))
        return cross_entropy_sum(scores_MV, labels_M)

    scores = Bert(SHAPE).heads(torch.randn(3, 24), torch.randn(2, 24))
    weighted_loss(scores, torch.tensor([1, 2, 3]), torch.tensor([0, 1]), 0.5, 0.5, summed)
    assert seen == [3]


def test_the_compiler_is_set_up_before_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch._inductor.config.patch(compile_threads=32):
        seen: list[int] = []

        def tried(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
            seen.append(torch._inductor.config.compile_threads)
            return function

        monkeypatch.setattr(torch, "compile", tried)
        assert obstacle(torch.device("cpu")) is None
        assert seen == [1], "32 compiling processes on every rank"


def test_token_types_get_the_gradient_of_a_lookup_without_its_additions_into_two_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(1)
    embeddings = Embeddings(SHAPE, plain_dropout).double().eval()
    tokens_T, segments_T, positions_T = torch.tensor([[5, 3, 3, 28], [0, 1, 1, 0], [0, 1, 2, 3]]).int()
    answers = []
    for compiling in (False, True):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda now=compiling: now)
        embeddings.zero_grad()
        hidden_TD = embeddings(tokens_T, segments_T, positions_T)
        (hidden_TD * torch.arange(24)).sum().backward()
        assert embeddings.token_type.weight.grad is not None
        answers.append((hidden_TD.detach(), embeddings.token_type.weight.grad.clone()))
    torch.testing.assert_close(answers[0], answers[1], rtol=0, atol=1e-12)
    with torch.profiler.profile() as profile:
        embeddings(tokens_T, segments_T, positions_T).sum().backward()
    lookups = next(event.count for event in profile.key_averages() if event.key == "aten::embedding_dense_backward")
    assert lookups == 2, "words and positions"
