"""A vocabulary that tensor-parallel ranks share: loss, gradients and predictions of the whole, on real gloo ranks."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from bertbench.checkpoint.weights_file import write_weights
from bertbench.config.layout import Layout, vocabulary_rows
from bertbench.distributed.world import World
from bertbench.model.bert import Embeddings, MaskedLmHead
from bertbench.model.logical_tensors import local, whole_tensor
from bertbench.model.loss import IGNORED, cross_entropy_sum
from bertbench.model.shape import BertShape
from bertbench.parallel.process_groups import ProcessGroups
from bertbench.parallel.split_vocabulary import SplitEmbedding, SplitHead
from bertbench.parallel.stage import modules_of_stages
from bertbench.training.task import PRE_TRAINING, initial_model
from tests.conftest import Tiny
from tests.ranks import run_ranks

EXACT = 1e-5  # fp32 sums of a few numbers near 1, in another order
SHAPE = BertShape(vocab_size=13, hidden_size=6, layers=1, attention_heads=2, feed_forward_size=5, max_positions=7)
LABELS = (0, 12, IGNORED, 7, 6)
"""The first and the last id, the first of rank 1 and the last of rank 0, and one that doesn't count."""


class Computed(NamedTuple):
    loss: float
    gradients: dict[str, NDArray[np.float32]]
    predictions: list[int]


def whole_head() -> MaskedLmHead:
    head = MaskedLmHead(SHAPE)
    torch.nn.init.normal_(head.bias)
    return head


def computed(head: MaskedLmHead, word_VD: Tensor, split: bool) -> Computed:
    hidden_MD = torch.randn(len(LABELS), SHAPE.hidden_size, generator=torch.Generator().manual_seed(3))
    hidden_MD.requires_grad_()
    labels_M = torch.tensor(LABELS)
    loss = head(hidden_MD, word_VD, labels_M) if split else cross_entropy_sum(head(hidden_MD, word_VD), labels_M)
    (0.5 * loss).backward()
    held = {"hidden": hidden_MD, "word": word_VD, **dict(head.named_parameters())}
    gradients = {}
    for name, tensor in held.items():
        assert tensor.grad is not None
        gradients[name] = whole_tensor(tensor.grad).numpy()
    return Computed(loss.item(), gradients, head.predictions(hidden_MD.detach(), word_VD).tolist())


def both_heads(world: World) -> tuple[Computed, Computed]:
    """Return what the whole head computes, and what two ranks compute together."""
    torch.manual_seed(2)
    whole = whole_head()
    embedding = torch.nn.Embedding(SHAPE.vocab_size, SHAPE.hidden_size)
    mesh = mesh_of(world)
    split = SplitHead(whole, mesh)
    words = SplitEmbedding(embedding, mesh)
    split_computed = computed(split, words.weight, split=True)
    whole.zero_grad()
    return computed(whole, embedding.weight, split=False), split_computed


def mesh_of(world: World) -> DeviceMesh:
    groups = ProcessGroups(Layout(data=1, tensor=2), world, fully_shard=False)
    return groups.mesh("tensor", groups.tensor)


def test_two_ranks_compute_the_loss_and_the_gradients_of_the_whole_head() -> None:
    for whole, split in run_ranks(2, both_heads):
        assert split.loss == pytest.approx(whole.loss, rel=EXACT)
        assert split.gradients.keys() == whole.gradients.keys()
        for name, expected in whole.gradients.items():
            assert split.gradients[name] == pytest.approx(expected, abs=EXACT), name
        assert split.predictions == whole.predictions


def equal_scores(world: World) -> list[int]:
    """Return predictions where all rows and biases are equal, but for rows that a token prefers."""
    head = MaskedLmHead(SHAPE)
    embedding = torch.nn.Embedding(SHAPE.vocab_size, SHAPE.hidden_size)
    with torch.no_grad():
        embedding.weight.fill_(0.0)
        head.bias.copy_(torch.tensor([0.0] * 5 + [1.0, 0.0] + [0.0] * 4 + [1.0, 1.0]))
    mesh = mesh_of(world)
    split, words = SplitHead(head, mesh), SplitEmbedding(embedding, mesh)
    with torch.no_grad():
        return split.predictions(torch.ones(1, SHAPE.hidden_size), words.weight).tolist()


def test_among_equal_scores_the_lowest_id_is_predicted_as_by_the_whole_head() -> None:
    # ids 5, 11 and 12 score 1: the first is rank 0's, the others rank 1's
    assert run_ranks(2, equal_scores) == [[5], [5]]


def looked_up(world: World) -> tuple[list[int], bool, bool]:
    """Return the rows that this rank holds, and whether its lookup and its gradient are those of the whole matrix."""
    torch.manual_seed(5)
    whole = Embeddings(SHAPE).word
    split = SplitEmbedding(whole, mesh_of(world))
    tokens = torch.tensor([12, 0, 6, 7, 12], dtype=torch.int32)
    factors = torch.arange(1.0, 6.0)[:, None]
    for embedding in (whole, split):
        (factors * embedding(tokens)).sum().backward()
    assert whole.weight.grad is not None and split.weight.grad is not None
    same = torch.equal(split(tokens), whole(tokens))
    same_gradient = torch.equal(whole_tensor(split.weight.grad), whole.weight.grad)
    held = local(split.weight)
    rows = [row for row in range(13) if any(torch.equal(whole.weight[row], other) for other in held)]
    return rows, same, same_gradient


def test_the_last_rank_holds_the_remaining_rows() -> None:
    assert run_ranks(2, looked_up) == [([*range(7)], True, True), ([*range(7, 13)], True, True)]


def test_rows_cover_the_vocabulary_once() -> None:
    for vocabulary, ranks in ((13, 2), (13, 4), (30_528, 8), (30_522, 8), (12, 4)):
        rows = [row for place in range(ranks) for row in vocabulary_rows(vocabulary, ranks, place)]
        assert rows == [*range(vocabulary)]
    assert {len(vocabulary_rows(30_528, 8, place)) for place in range(8)} == {3816}


@pytest.mark.parametrize("weights", ["random", "mimetic", "of a file"])
def test_a_stage_is_built_without_the_rest_of_the_model_and_has_its_weights(
    tiny: Tiny, tmp_path: Path, weights: str
) -> None:
    overrides = ["model.layers=4"]
    if weights == "mimetic":
        overrides.append("model.initial_weights=mimetic")
    if weights == "of a file":
        donor = initial_model(tiny(*overrides), seed=9)
        path = tmp_path / "donor.safetensors"
        write_weights(path, dict(donor.state_dict()), donor.shape, 97, "a test")
        overrides.append(f"model.checkpoint={path}")
    system = tiny(*overrides)
    whole = initial_model(system, seed=3).state_dict()
    first, last = {"embeddings", "layers.0", "layers.1"}, {"layers.2", "layers.3", *PRE_TRAINING.heads}
    for number, own in ((0, first), (1, last)):
        held = modules_of_stages([number], 2, 4, PRE_TRAINING.heads)
        assert set(held) == own
        part = initial_model(system, 3, held).state_dict()
        for name, tensor in part.items():
            is_own = any(name.startswith(f"{module}.") for module in own)
            assert tensor.is_meta is not is_own, name
            assert tensor.is_meta or torch.equal(tensor, whole[name]), name
