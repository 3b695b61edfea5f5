"""NVIDIA's library with GPUs that a test describes, in place of the driver of another machine."""

from typing import Any, NamedTuple

import pytest

from bertbench.machine import describe, energy, gpus, provenance


class Card(NamedTuple):
    """A GPU as the driver describes it."""

    model: str
    mib: int
    capability: tuple[int, int]
    uuid: str = "GPU-0"
    slices: tuple["Card", ...] = ()
    """Its parts, if it is divided; the driver gives no compute capability for them."""


# Memory as nvidia-smi prints it for these cards
T4 = Card("Tesla T4", 15360, (7, 5))
RTX_4090 = Card("NVIDIA GeForce RTX 4090", 24564, (8, 9))
A100_40 = Card("NVIDIA A100-SXM4-40GB", 40960, (8, 0))
H100 = Card("NVIDIA H100 80GB HBM3", 81559, (9, 0))


class Memory(NamedTuple):
    """nvmlMemory_t."""

    total: int
    used: int = 0


class Driver:
    """The library with the functions that our code calls; any other call is answered as unsupported by this GPU."""

    NVML_NVLINK_MAX_LINKS, NVML_CLOCK_SM = 18, 1
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0

    class NVMLError(Exception):
        """Not supported."""

    def __init__(self, cards: list[Card]) -> None:
        self.cards = cards

    def nvmlInit(self) -> None:  # noqa: N802 - the library's names
        """Start."""

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        """Return the number of GPUs."""
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:  # noqa: N802
        """Return a handle."""
        return self.cards[index]

    def nvmlDeviceGetName(self, card: Card) -> str:  # noqa: N802
        """Return the model."""
        return card.model

    def nvmlDeviceGetUUID(self, card: Card) -> str:  # noqa: N802
        """Return the identifier."""
        return card.uuid

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> Memory:  # noqa: N802
        """Return the memory in bytes."""
        return Memory(card.mib * 2**20)

    def nvmlDeviceGetCudaComputeCapability(self, card: Card) -> tuple[int, int]:  # noqa: N802
        """Return the compute capability."""
        if card not in self.cards:
            raise self.NVMLError("not supported")
        return card.capability

    def nvmlDeviceGetMaxMigDeviceCount(self, card: Card) -> int:  # noqa: N802
        """Return the number of slices that the card could have."""
        return 7 if card.slices else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, index: int) -> Card:  # noqa: N802
        """Return a handle of a slice."""
        if index >= len(card.slices):
            raise self.NVMLError("not found")
        return card.slices[index]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, mig_slice: Card) -> Card:  # noqa: N802
        """Return the card to which a slice belongs."""
        for card in self.cards:
            if mig_slice in card.slices:
                return card
        raise self.NVMLError("not a slice")

    def __getattr__(self, name: str) -> Any:
        """Return the answer to a call that isn't supported."""

        def refuse(*_: Any) -> None:
            raise self.NVMLError("not supported")

        return 0 if name.startswith("nvmlClocks") else refuse


def install(monkeypatch: pytest.MonkeyPatch, *cards: Card) -> None:
    """Let this process find these GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for module in (describe, energy, gpus, provenance):
        monkeypatch.setattr(module, "pynvml", Driver(list(cards)))
