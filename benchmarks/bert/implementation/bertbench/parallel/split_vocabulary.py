"""Split the vocabulary over tensor-parallel ranks: the word embeddings, and the masked-LM head that reads them again.

Each rank holds some rows of the word embeddings, with the rows' biases in the head (Shoeybi et al. 2019, arXiv
1909.08053). It looks up the tokens whose rows it holds; a sum over the ranks then gives every token its embedding. It
scores masked tokens against its own rows only, and no rank ever has all scores of a token. From other ranks, the loss
needs only the highest score, the sum of exponentials and the label's score.

The last rank holds the remaining rows and all others hold the same number, so a vocabulary that doesn't divide needs no
padding.
Shapes: as in model/bert.py; W rows of the vocabulary on this rank.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable
from torch.distributed._functional_collectives import all_reduce, wait_tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn import functional

from bertbench.config.layout import vocabulary_rows
from bertbench.model.bert import MaskedLmHead
from bertbench.model.logical_tensors import local
from bertbench.model.loops import gelu
from bertbench.model.loss import IGNORED, cross_entropy_sum
from bertbench.parallel.stage import Stage


class _Share(NamedTuple):
    """This rank's rows of the vocabulary, and the ranks that hold the others."""

    rows: range
    vocabulary: int
    group: distributed.ProcessGroup

    @classmethod
    def of(cls, vocabulary: int, mesh: DeviceMesh) -> "_Share":
        rows = vocabulary_rows(vocabulary, mesh.size(), mesh.get_local_rank())
        return cls(rows, vocabulary, mesh.get_group())

    def places(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return which ids have a row on this rank, and each id's place among the rank's rows (0 for other ids)."""
        places = ids - self.rows.start
        is_here = (places >= 0) & (places < len(self.rows))
        return is_here, places.where(is_here, 0)

    def reduce(self, tensor: Tensor, operation: Literal["sum", "max", "min"]) -> Tensor:
        """Return the sum, maximum or minimum of all ranks' tensors."""
        # a functional collective, as DTensor's are, so that both are counted under tensor parallelism
        reduced: Tensor = wait_tensor(all_reduce(tensor.contiguous(), operation, self.group))
        return reduced


def split_vocabulary(stage: Stage, mesh: DeviceMesh) -> None:
    """Keep only this rank's rows of a stage's word embeddings and masked-LM head. Collective over the mesh."""
    embeddings = getattr(stage, "embeddings", None)
    if embeddings is not None:
        embeddings.word = SplitEmbedding(embeddings.word, mesh)
    head = getattr(stage, "masked_lm", None)
    if head is not None:
        stage.masked_lm = SplitHead(head, mesh)
        stage.sum_pair_losses = cross_entropy_sum


class SplitEmbedding(nn.Module):
    """This rank's rows of an embedding."""

    def __init__(self, whole: nn.Embedding, mesh: DeviceMesh) -> None:
        super().__init__()
        self._share = _Share.of(whole.num_embeddings, mesh)
        self.weight = _split_rows(whole.weight, mesh)

    def forward(self, tokens_T: Tensor) -> Tensor:
        """Return the tokens' embeddings on every rank: [T] in, [T, D] out."""
        is_here_T, places_T = self._share.places(tokens_T)
        rows_TD = functional.embedding(places_T, local(self.weight))
        own_rows_TD = rows_TD.masked_fill(~is_here_T[:, None], 0.0)
        word_TD: Tensor = _SumOverRanks.apply(own_rows_TD, self._share)
        return word_TD


class SplitHead(MaskedLmHead):
    """A masked-LM head that scores tokens against this rank's rows of the vocabulary."""

    def __init__(self, whole: MaskedLmHead, mesh: DeviceMesh) -> None:
        nn.Module.__init__(self)
        self._share = _Share.of(len(whole.bias), mesh)
        self.dense = whole.dense
        self.norm = whole.norm
        self.bias = _split_rows(whole.bias, mesh)

    def forward(self, hidden_MD: Tensor, word_VD: Tensor, labels_M: Tensor | None = None) -> Tensor:
        """Return the scores of this rank's rows, [M, D] in, [M, W] out; with labels, the sum of the cross-entropies."""
        hidden_MD = self.norm(gelu(self.dense(hidden_MD)))
        hidden_MD = _SumOfGradients.apply(hidden_MD, self._share)
        scores_MW = functional.linear(hidden_MD, local(word_VD), local(self.bias))
        if labels_M is None:
            return scores_MW
        total: Tensor = _SplitCrossEntropy.apply(scores_MW, labels_M, self._share)
        return total

    def predictions(self, hidden_MD: Tensor, word_VD: Tensor) -> Tensor:
        """Return the id with the highest score among all ranks' rows; of equal scores, the lowest id: [M, D] to [M]."""
        own_highest_M, places_M = self(hidden_MD, word_VD).float().max(dim=-1)
        highest_M = self._share.reduce(own_highest_M, "max")
        candidates_M = (places_M + self._share.rows.start).where(own_highest_M == highest_M, self._share.vocabulary)
        return self._share.reduce(candidates_M, "min")


def _split_rows(tensor: Tensor, mesh: DeviceMesh) -> nn.Parameter:
    """Return this rank's rows of a tensor, as a DTensor that knows the tensor's whole shape."""
    return nn.Parameter(distribute_tensor(tensor.detach(), mesh, [Shard(0)]), tensor.requires_grad)


class _SumOverRanks(torch.autograd.Function):
    """Sums over the ranks. All ranks compute the same from the sum, so each rank has its whole gradient."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, share: _Share) -> Tensor:
        return share.reduce(part, "sum")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _SumOfGradients(torch.autograd.Function):
    """Passes on a tensor that all ranks hold; in the backward pass, sums the ranks' parts of its gradient in fp32."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, share: _Share) -> Tensor:
        ctx.share = share
        return tensor.view_as(tensor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        wide = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
        return ctx.share.reduce(wide, "sum").to(gradient.dtype), None


class _SplitCrossEntropy(torch.autograd.Function):
    """Sums -log softmax(scores)[label] over rows, in at least fp32; each rank has the scores of its own rows."""

    @staticmethod
    def forward(ctx: Any, scores_MW: Tensor, labels_M: Tensor, share: _Share) -> Tensor:
        wide_MW = scores_MW.to(torch.promote_types(scores_MW.dtype, torch.float32))
        highest_M = share.reduce(wide_MW.amax(-1), "max")
        exponentials_MW = (wide_MW - highest_M[:, None]).exp()
        is_here_M, places_M = share.places(labels_M)
        own_label_score_M = wide_MW.gather(1, places_M[:, None])[:, 0].masked_fill(~is_here_M, 0.0)
        sums_2M = share.reduce(torch.stack((exponentials_MW.sum(-1), own_label_score_M)), "sum")
        exponential_sum_M, label_score_M = sums_2M.unbind()
        counts_M = labels_M != IGNORED
        ctx.save_for_backward(exponentials_MW.div_(exponential_sum_M[:, None]), is_here_M, places_M, counts_M)
        ctx.scores_type = scores_MW.dtype
        return ((highest_M + exponential_sum_M.log() - label_score_M) * counts_M).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        probabilities_MW, is_here_M, places_M, counts_M = ctx.saved_tensors
        is_label_M1 = is_here_M.to(probabilities_MW.dtype)[:, None]
        to_scores_MW = probabilities_MW.scatter_add(1, places_M[:, None], -is_label_M1)
        to_scores_MW *= (counts_M * gradient)[:, None]
        return to_scores_MW.to(ctx.scores_type), None, None
