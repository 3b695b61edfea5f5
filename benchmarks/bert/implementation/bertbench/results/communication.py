"""Describe how a run computes, sends and applies gradients, for its output and its folder."""

from dataclasses import dataclass

from bertbench.config.optimizer import GRADIENT_BYTES, ClipMode, Compression


@dataclass(frozen=True)
class Communication:
    """How a run computes, sends and applies gradients."""

    clip: ClipMode
    compression: Compression
    bucket_elements: tuple[int, ...]
    """Elements of each bucket, in the order of reduction."""
    bytes_per_step: int
    """Bytes that one rank contributes."""
    model_arithmetic: str
    optimizer_arithmetic: str
    sync: str = "every_step"
    """`sync.method`; with local updates, `bytes_per_step` is a step's share of the outer step."""

    transport: str = "collectives"
    """`collectives` of torch, or `shared memory` of ranks on one machine."""

    def text(self) -> str:
        """Return all of it in a line."""
        sizes = [GRADIENT_BYTES * elements / 2**20 for elements in self.bucket_elements]
        return (
            f"gradients: {len(sizes)} buckets of {min(sizes):.1f} to {max(sizes):.1f} MiB, clip {self.clip}, "
            f"sync {self.sync}, compression {self.compression}, {self.bytes_per_step:,} bytes a rank and step by "
            f"{self.transport}; "
            f"model: {self.model_arithmetic}; optimizer: {self.optimizer_arithmetic}"
        )
