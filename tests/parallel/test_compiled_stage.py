"""Pieces of a split model under torch.compile, in one process; tests/parallel/test_equality.py compares on ranks."""

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

from bertbench.loading.batch import synthetic
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.model.bert import Bert
from bertbench.model.shape import BertShape
from bertbench.parallel.stage import Stage
from tests.compiling import compiled_by

SHAPE = BertShape(
    vocab_size=29, hidden_size=24, layers=4, attention_heads=2, feed_forward_size=40, max_positions=16,
    hidden_dropout=0.0, attention_dropout=0.0,
)  # fmt: skip


def losses_and_gradients(fuse: bool) -> tuple[list[float], list[torch.Tensor]]:
    """Two microbatches of different sizes through two stages."""
    torch.manual_seed(3)
    model = Bert(SHAPE)
    stages = [Stage(model, number, 2, "fp32") for number in range(2)]
    generator = torch.Generator().manual_seed(3)
    parts = [
        LoadedPart(Part(np.arange(size), 0.5, 0.25), synthetic(size, longest, SHAPE.vocab_size, generator))
        for size, longest in ((3, 12), (2, 9))
    ]
    losses = []
    for stage in stages:
        stage.microbatches = parts
        if fuse:
            stage.fuse()
    for place in torch.arange(2).split(1):
        (loss,) = stages[1](stages[0](place, place), place)
        loss.backward()
        losses.append(float(loss.detach()))
    words = stages[1].embeddings.get_parameter("word.weight")
    gradients = [weight.grad for stage in stages for weight in stage.parameters() if weight is not words]
    return losses, [words.grad, *gradients]  # type: ignore[list-item]


def test_all_layers_of_all_stages_share_two_graphs_and_compute_the_same() -> None:
    plain = losses_and_gradients(fuse=False)
    with compiled_by(CompileCounter()) as graphs:
        compiled = losses_and_gradients(fuse=True)
    assert graphs.frame_count == 7, "embeddings, a layer's two ends, three heads, the pairs' loss"
    assert compiled[0] == pytest.approx(plain[0], rel=1e-6)
    for ours, expected in zip(compiled[1], plain[1], strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)
