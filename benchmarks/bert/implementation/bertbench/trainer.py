"""One optimizer step: forward and backward over a rank's parts, gradients reduced behind it, clip, update.

Shapes: as in model/bert.py.
"""

from contextlib import nullcontext

import torch
from torch import distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from bertbench.checkpoint.weights import load_weights
from bertbench.config import System
from bertbench.data.batch import synthetic
from bertbench.data.loader import LoadedPart
from bertbench.data.sampler import Part
from bertbench.model.bert import Bert, Scores
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.reduce import clip_after, gradient_norm, sum_bucket
from bertbench.paths import weights_file
from bertbench.precision import computing
from bertbench.seeding import derive
from bertbench.world import World

_WARMUP_STEPS = 2  # DDP's first backward pass fills one bucket; only after it are the real ones built


class Trainer:
    """The model of one rank with its optimizer; `step` is the whole of the timed work."""

    def __init__(self, system: System, world: World, seed: int) -> None:
        self._system = system
        self._world = world
        self.model = Bert(system.model.shape())
        if system.model.checkpoint is None:
            self.model.initialize(torch.Generator().manual_seed(derive(seed, "weights")))
        else:
            load_weights(weights_file(system.model.checkpoint), self.model)
        self.model.to(world.device)
        self._parallel = DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        self._parallel.register_comm_hook(distributed.group.WORLD, sum_bucket)
        self.optimizer = MultiTensorAdam(
            self.model.parameters(),
            system.optimizer.options(),
            trust_ratio=system.optimizer.name == "lamb",
            fused=self.model.fused_parameters(),
        )
        self._schedule = system.learning_rate
        self._warm_up(seed)
        torch.manual_seed(derive(seed, "dropout", world.rank))

    def step(self, number: int, parts: list[LoadedPart]) -> tuple[torch.Tensor, torch.Tensor, float]:
        """Take step `number`, counted from 0.

        Returns this rank's share of the loss and the gradient's norm, both on the device, and the learning rate.
        """
        loss = torch.zeros((), device=self._world.device)
        for place, part in enumerate(parts, start=1):
            last = place == len(parts)
            with nullcontext() if last else self._parallel.no_sync():
                part_loss = self._loss(part)
                part_loss.backward()
            loss += part_loss.detach()
        clip = self._system.clip
        parameters = self.model.parameters()
        norm = clip_after(parameters, clip.max_norm) if clip.mode == "after" else gradient_norm(parameters)
        rate = self._schedule.rate(number)
        self.optimizer.step(rate)
        self._parallel.zero_grad(set_to_none=False)  # gradients are views of the buckets
        return loss, norm, rate

    def _loss(self, loaded: LoadedPart) -> torch.Tensor:
        """Weighted sums of both heads' cross-entropies; all parts of all ranks add up to the batch's loss."""
        part, batch = loaded
        with computing(self._system.precision.compute, self._world.device):
            scores: Scores = self._parallel(
                batch.tokens_T, batch.segments_T, batch.positions_T, batch.sequences, batch.masked_at_M
            )
        masked_lm = functional.cross_entropy(scores.masked_lm_MV.float(), batch.masked_labels_M, reduction="sum")
        next_sentence = functional.cross_entropy(
            scores.next_sentence_S2.float(), batch.next_sentence_S, reduction="sum"
        )
        return masked_lm * part.masked_lm_weight + next_sentence * part.next_sentence_weight

    def _warm_up(self, seed: int) -> None:
        """Untimed: run steps on synthetic batches, then put weights and optimizer back as they were."""
        system = self._system
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        generator = torch.Generator().manual_seed(derive(seed, "warm-up"))
        size = system.local_batch // system.data.gradient_accumulation_steps
        for _ in range(_WARMUP_STEPS):
            batch = synthetic(size, system.model.max_positions, system.model.vocab_size, generator)
            part = Part(torch.arange(size).numpy(), 1 / len(batch.masked_at_M), 1 / size)
            loaded = LoadedPart(part, batch.to(self._world.device))
            self.step(0, [loaded] * system.data.gradient_accumulation_steps)
        self.model.load_state_dict(weights)
        self.optimizer.reset()

    def close(self) -> None:
        """Let go of DDP and its hook; before the process group ends."""
        del self._parallel
