"""`lab ideas`: time each idea of a CPU's step and its plain alternative in turns, once their results agree.

Both compute the same function of the same inputs, forward and backward, on one thread; medians count.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from bertbench.common.errors import RunError
from bertbench.common.progress import Progress
from bertbench.distributed.affinity import available_cores
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch, batch_of
from bertbench.loading.random_samples import samples_of
from bertbench.model.bert import Bert
from bertbench.model.encoder import EncoderLayer
from bertbench.model.shape import BertShape
from lab.bench.step import wikipedia_batches

Tensors = tuple[torch.Tensor, ...]

FP32 = 1e-4  # allowed difference, as a share of a tensor's largest element


@dataclass(frozen=True)
class Trial:
    """An idea beside its plain alternative; both sides take what `inputs` makes before every call, untimed."""

    alternative: str
    size: str
    file: str  # with the idea's code, in bertbench/
    sides: tuple[Callable[..., Tensors], Callable[..., Tensors]]  # plain, ours
    inputs: Callable[[], tuple[Any, ...]] = tuple
    tolerance: float = FP32
    comparable: Callable[[], tuple[Tensors, Tensors]] | None = None
    """Results of both sides that must agree, where they draw different dropout masks."""


@dataclass(frozen=True)
class Row:
    """Medians of one trial; `plain` names the alternative."""

    idea: str
    plain: str
    size: str
    plain_ms: float
    ours_ms: float
    ratio: float
    file: str


@dataclass(frozen=True)
class Setting:
    """What the trials compute on."""

    shapes: Mapping[str, BertShape]  # small, medium and demo
    demo_sequences: int
    demo_short: float  # share of the demo's sequences that have a random length; the others have the longest
    seed: int
    sequences: int = 4  # in a batch of Wikipedia's lengths
    shards: int = 250

    def batch(self, size: str) -> Batch:
        """Return a batch of random tokens with the size's lengths."""
        shape, random = self.shapes[size], np.random.default_rng(self.seed)
        if size == "demo":
            drawn = random.integers(5, shape.max_positions, self.demo_sequences, endpoint=True)
            short = random.random(self.demo_sequences) < self.demo_short
            lengths = np.sort(np.where(short, drawn, shape.max_positions))[::-1]
        else:
            lengths = wikipedia_batches(self.sequences, 1, self.seed)[0].lengths
        return batch_of(samples_of(np.minimum(lengths, shape.max_positions), self.seed, shape.vocab_size))

    def model(self, size: str) -> Bert:
        """Return an untrained model without dropout."""
        model = Bert(replace(self.shapes[size], hidden_dropout=0.0, attention_dropout=0.0))
        model.initialize(torch.Generator().manual_seed(self.seed))
        return model


Idea = Callable[[Setting], Iterator[Trial]]
RankIdea = Callable[[Setting, World], Iterator[Trial]]


def measure(
    ideas: Mapping[str, Idea], rank_ideas: Mapping[str, RankIdea], setting: Setting, rounds: int, progress: Progress
) -> list[Row]:
    """Return the rows of all ideas, those of `rank_ideas` measured on two ranks.

    An idea that can't be measured on this machine gets no row. Raises RunError if results disagree.
    """
    rows, steps = [], len(ideas) + 1
    for number, (name, idea) in enumerate(ideas.items()):
        progress.update(number, steps, f"measuring {name}")
        torch.manual_seed(setting.seed)
        rows += [compare(name, trial, rounds) for trial in idea(setting)]
    if rank_ideas:
        progress.update(len(ideas), steps, f"measuring {', '.join(rank_ideas)} on two ranks")
        found = on_ranks(2, measure_on_ranks, rank_ideas, setting, rounds)
        if isinstance(found, RunError):
            raise found
        rows += found
    for name in (*ideas, *rank_ideas):
        if name not in {row.idea for row in rows}:
            progress.message(f"{name}: not measured, because this machine can't do both")
    return rows


def measure_on_ranks(
    world: World, ideas: Mapping[str, RankIdea], setting: Setting, rounds: int
) -> list[Row] | RunError:
    """Return the rows of ideas that need ranks, by this rank's clock; return the error if results disagree."""
    torch.set_num_threads(1)
    torch.manual_seed(setting.seed)
    try:
        return [compare(name, trial, rounds) for name, idea in ideas.items() for trial in idea(setting, world)]
    except RunError as error:
        return error


def compare(idea: str, trial: Trial, rounds: int) -> Row:
    """Time both sides `rounds` times, each first in every other round. Raises RunError if results disagree."""
    plain, ours = trial.comparable() if trial.comparable else (side(*trial.inputs()) for side in trial.sides)
    difference = _difference(plain, ours)
    if not difference <= trial.tolerance:
        raise RunError(
            f"{idea}: differs from {trial.alternative} by {difference:.1e} of a tensor's largest element, expected at "
            f"most {trial.tolerance:.1e}; not timed, because one of them is wrong"
        )
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(1 + rounds):
        for place in (0, 1) if number % 2 else (1, 0):
            inputs = trial.inputs()
            began = time.perf_counter()
            trial.sides[place](*inputs)
            times[place].append(1e3 * (time.perf_counter() - began))
    plain_ms, ours_ms = (statistics.median(side[1:]) for side in times)  # the first round warms up
    ratio = round(plain_ms / ours_ms, 3)
    return Row(idea, trial.alternative, trial.size, round(plain_ms, 4), round(ours_ms, 4), ratio, trial.file)


def _difference(plain: Tensors, ours: Tensors) -> float:
    """Return the largest difference, as a share of its tensor's largest element; nan if a number is."""
    shares = [
        (own.double() - its.double()).abs().max() / its.double().abs().max().clamp(min=1e-30)
        for its, own in zip(plain, ours, strict=True)
    ]
    return float(torch.stack(shares).max())


def size_of(text: str, batch: Batch) -> str:
    """Return a trial's size: `text` and the batch's tokens."""
    return f"{text}, {len(batch.tokens_T):,} tokens"


def sums(setting: Setting, world: World) -> Iterator[Trial]:
    """Sum over the ranks of a machine in shared memory."""
    gloo = replace(world, shared=None)
    parameters = sum(parameter.numel() for parameter in setting.model("demo").parameters())
    for count, size in ((parameters, f"demo's gradient, {parameters:,} numbers"), (1, "one number")):
        own = torch.randn(count, generator=torch.Generator().manual_seed(setting.seed + world.rank))
        sides = lambda numbers: (gloo.sum(numbers),), lambda numbers: (world.sum(numbers),)
        if world.shared is not None:
            yield Trial("gloo", size, "distributed/shared_memory.py", sides, partial(_together, world, own))


def threads(setting: Setting, world: World) -> Iterator[Trial]:
    """Give each rank its share of the cores."""
    batch, shape, cores = setting.batch("small"), setting.shapes["small"], available_cores()
    layer = EncoderLayer(shape).eval()
    hidden_TD = torch.randn(len(batch.tokens_T), shape.hidden_size)

    def passes(count: int, gradient_TD: torch.Tensor) -> Tensors:
        torch.set_num_threads(count)
        output_TD = layer(hidden_TD, batch.sequences)
        return torch.autograd.grad(output_TD, list(layer.parameters()), gradient_TD)

    sides = partial(passes, cores), partial(passes, max(1, cores // world.size))
    size = size_of(f"small's layer on {world.size} ranks", batch)
    yield Trial("all cores for each", size, "distributed/world.py", sides, partial(_together, world, hidden_TD))


def _together(world: World, numbers: torch.Tensor) -> tuple[torch.Tensor]:
    """Return a copy, once all ranks are here."""
    world.sum(torch.zeros(1))
    return (numbers.clone(),)


RANK_IDEAS: dict[str, RankIdea] = {"sums": sums, "threads": threads}
