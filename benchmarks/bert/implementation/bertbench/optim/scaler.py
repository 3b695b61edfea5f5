"""Dynamic loss scaling for fp16, on the device: the host never learns whether a step was skipped."""

import torch

_GROWTH_INTERVAL = 2_000  # steps without overflow before the scale doubles (Micikevicius et al. 2018)


class LossScaler:
    """A factor on the loss that keeps fp16 gradients in range; halved at an overflow, doubled after a quiet time.

    Here the loss is divided by global counts, so a rank's gradients are smaller by the number of ranks than where
    ranks' means are averaged: the scale starts at `initial` times `ranks`, which means the same in fp16.
    """

    def __init__(self, initial: float, ranks: int, device: torch.device) -> None:
        self._first = initial * ranks
        self.scale = torch.full((), self._first, device=device)
        """The current factor. The tensor stays the same: others may hold it."""
        self._quiet = torch.zeros((), dtype=torch.int64, device=device)
        self.taken = torch.zeros((), dtype=torch.int64, device=device)
        """Steps that were not skipped."""

    def update(self, finite: torch.Tensor) -> None:
        """After a step: whether its reduced gradient was finite, the same on every rank."""
        quiet = torch.where(finite, self._quiet + 1, 0)
        grows = quiet == _GROWTH_INTERVAL
        self.scale.mul_(torch.where(finite, torch.where(grows, 2.0, 1.0), 0.5))
        self._quiet.copy_(torch.where(grows, 0, quiet))
        self.taken += finite

    def state(self) -> dict[str, torch.Tensor]:
        """All that it knows, as it is in memory."""
        return {"scale": self.scale, "quiet": self._quiet, "taken": self.taken}

    def reset(self) -> None:
        """As if new; after a warm-up."""
        self.scale.fill_(self._first)
        self._quiet.zero_()
        self.taken.zero_()
