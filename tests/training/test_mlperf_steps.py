"""Five steps of a closed system file are MLPerf's: transformers' BERT, the reference's loss and LAMB, in float64.

The other side shares nothing with ours but the samples and the initial weights: transformers' BertForPreTraining on
padded rows, a clip and a LAMB that are written out below, and the values of NVIDIA's log. Dropout is 0, since masks
can't be the same. BERT-Large takes 13 GB and minutes; two tiny layers take the same path in seconds, on two ranks.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from bertbench.balance.random_samples import samples_of_lengths
from bertbench.checkpoint.tensor_names import pieces, take_apart
from bertbench.config import System, load_system
from bertbench.data.store.columns import Columns, Integers
from bertbench.data.store.manifest import Manifest, Tokenizer
from bertbench.data.store.shards import write_split
from bertbench.distributed.world import World
from bertbench.loading.batch import read_samples
from bertbench.loading.inputs import open_data
from bertbench.training.whole_trainer import WholeTrainer
from lab.bench.stock import padded, stock_model
from tests.ranks import run_ranks
from tests.training.steps import SEED, loaded

pytest.importorskip("transformers")

STEPS = 5
LENGTHS = [32, 13, 7]
"""Tokens of a rank's samples in each step."""

EPSILON = 1e-6
MAX_NORM = 1.0


class HyperParameters(NamedTuple):
    """The values of a published log."""

    base_rate: float
    decay_steps: int
    beta1: float
    beta2: float
    weight_decay: float

    def rate(self, number: int) -> float:
        """The rate of a step, counted from 0: it falls by a line, and there is no warm-up."""
        return self.base_rate * (1 - number / self.decay_steps)


DGX_A100 = HyperParameters(4.25e-4, 6700, 0.9, 0.999, 0.01)
"""NVIDIA's dgxa100_ngc22.09_pytorch of round 2.1, which dgxa100_n1.json names as its source."""
DGX_H200 = HyperParameters(9.6e-4, 3680, 0.60466, 0.85437, 0.1)
"""NVIDIA's h200_ngc23.09_pytorch of round 4.0, which dgxh200_n1.json names as its source."""

ON_A_CPU = (
    "launch.device=cpu", "launch.clear_caches=false", "launch.bind_cores=false", "hardware.accelerators_per_node=0",
    "precision.compute=fp32", "compute.compile=none", "optimizer.impl=torch", "communication.compression=none",
)  # fmt: skip
# masks can't be the same, and MLPerf's checkpoint isn't here: the closed division refuses both
WITHOUT_DROPOUT = (
    "hardware.division=open", "model.checkpoint=null", "model.hidden_dropout=0", "model.attention_dropout=0",
)  # fmt: skip
TINY = (
    "model.vocab_size=97", "model.hidden_size=14", "model.layers=2", "model.attention_heads=2",
    "model.feed_forward_size=23", "model.max_positions=37",
)  # fmt: skip


class Taken(NamedTuple):
    """The results of our steps."""

    losses: list[float]
    ids: list[Integers]
    """Of this rank's samples, step by step."""


class WithoutWarmUp(WholeTrainer):
    """Take no untimed steps, because three full-length samples of BERT-Large take minutes and 5 GB on a CPU."""

    def _take_warm_up_steps(self, generator: torch.Generator) -> None:
        del generator


def closed_steps(name: str, folder: Path, ranks: int, *overrides: str) -> System:
    """Return a closed system of one node, on a CPU's ranks, with samples in `folder`."""
    system = load_system(name, (
        *ON_A_CPU, *WITHOUT_DROPOUT, *overrides, f"launch.ranks_per_node={ranks}", f"data.path={folder}",
        f"data.eval_path={folder}", f"data.global_batch_size={ranks * len(LENGTHS)}",
    ))  # fmt: skip
    lengths = np.array(LENGTHS * ranks * STEPS)
    content = samples_of_lengths(lengths, 1, system.model.vocab_size)
    train = write_split(folder / "train", [content], 7)
    evaluation = write_split(folder / "eval", [content], 7)
    Manifest(request={}, tokenizer=Tokenizer(system.model.vocab_size, "", {}), train=train, eval=evaluation).write(
        folder
    )
    return system


def take(world: World, system: System, folder: Path) -> Taken:
    """Take our steps; rank 0 leaves the weights before and after them in `folder`."""
    trainer = WithoutWarmUp(system, world, SEED)

    def save(name: str) -> None:
        if world.leads:
            torch.save({name: weight.detach() for name, weight in trainer.model.named_parameters()}, folder / name)

    save("before")
    losses = []
    ids = []
    for number, step in enumerate(loaded(world, system, STEPS)):
        (part,) = step.parts
        losses.append(world.sum(trainer.step(number, step.parts).loss).item())
        ids.append(part.part.ids)
    save("after")
    trainer.close()
    return Taken(losses, ids)


def in_their_names(system: System, file: Path) -> dict[str, Tensor]:
    """Return saved weights of ours under transformers' names, with query, key and value apart."""
    saved = torch.load(file, mmap=True)
    return {piece.hugging_face: tensor for piece, tensor in take_apart(pieces(system.model.shape()), saved).items()}


def is_vector(name: str) -> bool:
    return name.endswith("bias") or "LayerNorm" in name


class Reference:
    """transformers' model, clipping and LAMB, in float64."""

    def __init__(self, system: System, published: HyperParameters, initial: dict[str, Tensor]) -> None:
        self._published = published
        self._model: Any = stock_model(system.model.shape())
        missing, unexpected = self._model.load_state_dict(initial, strict=False)
        assert set(missing) == {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}, "tied ones"
        assert not unexpected
        self._model.double()
        self.weights: dict[str, Tensor] = dict(self._model.named_parameters())
        self._firsts = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}
        self._seconds = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}

    def step(self, number: int, batches: Sequence[Columns]) -> float:
        """Take step `number`, counted from 0, with each rank's samples; return the ranks' mean loss."""
        losses = []
        gradients: dict[str, Tensor] = {}
        for batch in batches:
            self._model.zero_grad()
            loss = self._model(**padded(batch)).loss
            loss.backward()
            losses.append(loss.item())
            norm = math.sqrt(sum(weight.grad.square().sum().item() for weight in self.weights.values()))
            share = min(1.0, MAX_NORM / norm) / len(batches)  # each rank clips its own, before the sum
            for name, weight in self.weights.items():
                gradient = weight.grad.mul_(share)
                gradients[name] = gradients[name].add_(gradient) if name in gradients else gradient
                weight.grad = None
        self._apply(number, gradients)
        return sum(losses) / len(losses)

    @torch.no_grad()
    def _apply(self, number: int, gradients: dict[str, Tensor]) -> None:
        rate = self._published.rate(number)
        beta1, beta2 = self._published.beta1, self._published.beta2
        for name, weight in self.weights.items():
            gradient = gradients.pop(name)
            first = self._firsts[name].mul_(beta1).add_(gradient, alpha=1 - beta1)
            second = self._seconds[name].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            unbiased_first = first / (1 - beta1 ** (number + 1))
            unbiased_second = second / (1 - beta2 ** (number + 1))
            update = unbiased_first / (unbiased_second.sqrt() + EPSILON)
            if is_vector(name):  # neither decay nor a trust ratio
                weight.sub_(rate * update)
            else:
                update.add_(weight, alpha=self._published.weight_decay)
                weight.sub_(rate * weight.norm() / update.norm() * update)


class Compared(NamedTuple):
    """Our losses, theirs, and how far each weight ended from theirs."""

    losses: list[float]
    expected: list[float]
    apart: dict[str, float]
    """Root mean squares by tensor, as shares of the way that LAMB goes: in each step the rate times the norm of a
    matrix, and about the rate for an element of a vector."""


def compare(shipped: str, published: HyperParameters, folder: Path, ranks: int, *overrides: str) -> Compared:
    """Take the steps with both."""
    system = closed_steps(shipped, folder, ranks, *overrides)
    by_rank = run_ranks(ranks, take, system, folder)
    initial = in_their_names(system, folder / "before")
    scales = {
        name: 1.0 if is_vector(name) else tensor.double().square().mean().sqrt().item()
        for name, tensor in initial.items()
    }
    reference = Reference(system, published, initial)
    del initial
    samples = open_data(system)[0].map_samples()
    expected = [
        reference.step(number, [read_samples(samples, taken.ids[number]) for taken in by_rank])
        for number in range(STEPS)
    ]
    way = sum(published.rate(number) for number in range(STEPS))
    found = in_their_names(system, folder / "after")
    apart = {}
    for name, scale in scales.items():
        error = (reference.weights[name].detach() - found.pop(name)).square().mean().sqrt().item()
        apart[name] = error / (way * scale)
    losses = by_rank[0].losses
    assert all(taken.losses == losses for taken in by_rank)
    return Compared(losses, expected, apart)


def test_tiny_closed_steps_on_two_ranks_are_those_of_transformers_and_a_lamb_written_out(tmp_path: Path) -> None:
    compared = compare("dgxh200_n1", DGX_H200, tmp_path, 2, *TINY)
    # fp32 in place of float64: seen are 1e-7 of a loss and 4e-5 of the way, which is a weight's own rounding. A rate or
    # a beta that is wrong in its third digit gives 9e-4, half the decay 0.02
    assert compared.losses == pytest.approx(compared.expected, rel=1e-6)
    assert max(compared.apart.values()) < 2e-4, compared.apart


@pytest.mark.slow
def test_five_closed_steps_of_bert_large_are_those_of_transformers_and_a_lamb_written_out(tmp_path: Path) -> None:
    compared = compare("dgxa100_n1", DGX_A100, tmp_path, 1)
    # sums of 4,096 numbers through 24 layers: seen are 4e-6 of a loss, and 1.2e-3 of the way of the output bias, whose
    # gradients are as small as LAMB's epsilon
    assert compared.losses == pytest.approx(compared.expected, rel=2e-5)
    assert max(compared.apart.values()) < 5e-3, compared.apart
