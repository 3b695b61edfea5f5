"""Describe how a run computes, sends and applies gradients, for its output and its folder."""

from dataclasses import dataclass

from bertbench.config.optimizer import GRADIENT_BYTES, ClipMode, Compression

_CLIPPED: dict[ClipMode, str] = {
    "none": "not clipped",
    "before": "clipped before ranks add them up",
    "bucket": "clipped bucket by bucket before ranks add them up",
    "after": "clipped after ranks add them up",
}


@dataclass(frozen=True)
class StepDescription:
    """How a run computes, sends and applies gradients; its fields are those of communication.json."""

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
        """Return what a reader of the output needs of it, in lines; communication.json has the rest."""
        buckets, mebibytes = len(self.bucket_elements), GRADIENT_BYTES * sum(self.bucket_elements) / 2**20
        ways = [name for name in (self.sync, self.compression) if name not in ("every_step", "none")]
        return (
            f"model: {self.model_arithmetic}\noptimizer: {self.optimizer_arithmetic}\n"
            f"gradients: {_CLIPPED[self.clip]}, {mebibytes:.1f} MiB in {buckets} buckets by "
            f"{', '.join((self.transport, *ways))}"
        )
