"""Scale the loss dynamically for fp16, on the device: the host never learns whether a step was skipped."""

import torch

_GROWTH_INTERVAL = 2_000  # steps without overflow before the scale doubles (Micikevicius et al. 2018)


class LossScaler:
    """A loss factor that keeps fp16 gradients in range: halved at an overflow, doubled after 2,000 good steps.

    The loss is divided by global counts, so a rank's gradients are smaller by the number of ranks than if ranks' means
    were averaged. So the scale starts at `initial` times `ranks`, which gives the same fp16 range.
    """

    def __init__(self, initial: float, ranks: int, device: torch.device) -> None:
        self._first = initial * ranks
        self.scale = torch.full((), self._first, device=device)
        """The current factor, updated in place: others may hold the tensor."""
        self._quiet = torch.zeros((), dtype=torch.int64, device=device)
        self.taken = torch.zeros((), dtype=torch.int64, device=device)
        """Steps that were not skipped."""

    def update(self, finite: torch.Tensor) -> None:
        """Adjust the scale after a step: `finite` tells whether its reduced gradient was, equal on every rank."""
        quiet = torch.where(finite, self._quiet + 1, 0)
        grows = quiet == _GROWTH_INTERVAL
        self.scale.mul_(torch.where(finite, torch.where(grows, 2.0, 1.0), 0.5))
        self._quiet.copy_(torch.where(grows, 0, quiet))
        self.taken += finite

    def state(self) -> dict[str, torch.Tensor]:
        """Return its state tensors themselves."""
        return {"scale": self.scale, "quiet": self._quiet, "taken": self.taken}

    def reset(self) -> None:
        """Return to the initial state; call it after a warm-up."""
        self.scale.fill_(self._first)
        self._quiet.zero_()
        self.taken.zero_()
