"""SOAP in slices under every clip mode takes the steps that SOAP on whole tensors takes with the clipped gradients.

Two runs can't be compared: a rounding of the clip factor turns the eigenvectors of equal eigenvalues, such as the zeros
of a gradient of low rank. So whole tensors take the very gradients that the slices were summed to, and those are held
against the formulas of optim/clip.py.
"""

import pytest
import torch
from torch import distributed

from bertbench.distributed.world import World
from bertbench.loading.batch import synthetic
from bertbench.model.bert import Bert
from bertbench.model.shape import BertShape
from bertbench.optim.buckets import Buckets, bucket_table, ready_order
from bertbench.optim.build import build_optimizer, build_sliced_optimizer
from bertbench.optim.clip import after_coefficient
from bertbench.optim.collectives import exchange
from bertbench.optim.distributed import SlicedDataParallel
from bertbench.optim.options import AdamOptions, ClipMode, OptimizerOptions, SoapOptions
from tests.ranks import run_ranks

TINY = BertShape(
    vocab_size=13, hidden_size=6, layers=2, attention_heads=2, feed_forward_size=7, max_positions=8,
    hidden_dropout=0.0, attention_dropout=0.0,
)  # fmt: skip
SOAP = OptimizerOptions("soap", AdamOptions(0.9, 0.95), soap=SoapOptions(precondition_frequency=2))
RANKS, STEPS, RATE = 2, 5, 0.01
MAX_NORM = 0.01  # every clip mode clips: gradients have norms above 0.1


def backward(model: Bert, seed: int) -> None:
    batch = synthetic(2, 8, TINY.vocab_size, torch.Generator().manual_seed(seed))
    scores = model(batch.tokens_T, batch.segments_T, batch.positions_T, batch.sequences, batch.masked_at_M)
    (scores.masked_lm_MV.square().sum() + scores.next_sentence_S2.square().sum()).backward()


def new_model() -> Bert:
    model = Bert(TINY)
    model.initialize(torch.Generator().manual_seed(3))
    return model


def expected(ranks: list[dict[str, torch.Tensor]], buckets: list[list[str]], mode: ClipMode) -> dict[str, torch.Tensor]:
    """Return the sum of the ranks' gradients, each clipped whole to c / R, or each of B buckets to c / (R sqrt(B))."""
    pieces = {"before": [[name for bucket in buckets for name in bucket]], "bucket": buckets}.get(mode, [])
    for gradients in ranks:
        for names in pieces:
            norm = torch.cat([gradients[name].flatten() for name in names]).norm().item()
            for name in names:
                gradients[name] *= min(1.0, MAX_NORM / RANKS / len(pieces) ** 0.5 / norm)
    return {name: sum((gradients[name] for gradients in ranks), torch.tensor(0.0)) for name in ranks[0]}


def compared(world: World, mode: ClipMode) -> list[tuple[float, float, float]]:
    """Return by step how far gradients are from the formula and weights from those of whole tensors, and the norm."""
    sliced, whole, raw = new_model(), new_model(), new_model()
    names = {parameter: name for name, parameter in sliced.named_parameters()}
    table = bucket_table(ready_order(sliced, lambda: backward(sliced, 0)), bucket_mb=0.0004)
    buckets, travel = Buckets(table, world.size, world.rank), exchange(False, world.size)
    parallel = SlicedDataParallel(sliced, buckets, travel, mode, MAX_NORM, "none", None)
    optimizer, _ = build_sliced_optimizer(sliced, buckets, travel, SOAP, "torch")
    reference, _ = build_optimizer(whole, SOAP, "torch")
    named = [[names[parameter] for parameter in bucket] for bucket in table]
    assert len(named) > 4
    found = []
    for step in range(STEPS):
        seed = STEPS * world.rank + step
        parallel.zero_grad(False)
        backward(sliced, seed)
        parallel.finish()
        norm = parallel.norm()
        for bucket in buckets.buckets:  # the sums of all slices, on all ranks
            pieces = [torch.empty_like(buckets.own(bucket.gradients)) for _ in range(world.size)]
            distributed.all_gather(pieces, buckets.own(bucket.gradients).clone())
            bucket.gradients.copy_(torch.cat(pieces))
        raw.zero_grad()
        raw.load_state_dict(sliced.state_dict())
        backward(raw, seed)
        of_ranks: list[dict[str, torch.Tensor]] = [{}] * world.size
        own = {name: parameter.grad for name, parameter in raw.named_parameters()}
        distributed.all_gather_object(of_ranks, own)
        right, apart = expected(of_ranks, named, mode), []
        for (name, mine), theirs in zip(whole.named_parameters(), sliced.parameters(), strict=True):
            assert theirs.grad is not None
            mine.grad = theirs.grad.clone()
            apart.append((theirs.grad - right[name]).abs().max().item())
        coefficient = after_coefficient(norm, MAX_NORM) if mode == "after" else None
        reference.step(RATE, coefficient)
        optimizer.step(RATE, coefficient)
        optimizer.settle()
        differences = [
            (mine - theirs).abs().max().item()
            for mine, theirs in zip(whole.parameters(), sliced.parameters(), strict=True)
        ]
        found.append((max(apart) / norm.item(), max(differences), norm.item()))
    pairs = zip(whole.parameters(), new_model().parameters(), strict=True)
    moved = max((mine - old).abs().max().item() for mine, old in pairs)
    assert moved > STEPS / 2 * RATE
    return found


@pytest.mark.parametrize("mode", ["none", "after", "before", "bucket"])
def test_soap_in_slices_is_soap_on_whole_tensors_in_every_clip_mode(mode: ClipMode) -> None:
    for found in run_ranks(RANKS, compared, mode):
        for gradients, weights, norm in found:
            assert gradients < 1e-5, "of the whole gradient's norm: fp32 sums in another order"
            assert weights < 1e-6, "steps of 0.01: fp32 products of whole matrices in other batches"
            assert norm <= MAX_NORM * (1 + 1e-5) if mode in ("before", "bucket") else norm > 10 * MAX_NORM
