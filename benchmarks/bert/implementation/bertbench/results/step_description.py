"""Describe how a run computes, sends and applies gradients, for its output and its folder."""

from dataclasses import dataclass

from bertbench.config.optimizer import GRADIENT_BYTES, ClipMode, Compression

_CLIPPED: dict[ClipMode, str] = {
    "none": "not clipped",
    "before": "clipped before the all-reduce",
    "bucket": "clipped bucket by bucket before the all-reduce",
    "after": "clipped after the all-reduce",
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

    clip_limit: float | None = None
    """Largest norm of what is clipped at once, a bucket's in mode `bucket`; None if nothing is clipped."""
    clip_divisor: int = 1
    """Number by whose root `clip.max_norm` is divided for it."""
    clipped_parts: int = 1
    """Parts of a rank's batch that are clipped one by one; 1 if their sum is."""
    transport: str = "collectives"
    """`collectives` of torch, or `shared memory` of ranks on one machine."""

    def text(self) -> str:
        """Return what a reader of the output needs of it, in lines; communication.json has the rest."""
        buckets, mebibytes = len(self.bucket_elements), GRADIENT_BYTES * sum(self.bucket_elements) / 2**20
        ways = [name for name in (self.sync, self.compression) if name not in ("every_step", "none")]
        return (
            f"model: {self.model_arithmetic}\noptimizer: {self.optimizer_arithmetic}\n"
            f"gradients: {self._clipping()}, {mebibytes:.1f} MiB in {buckets} buckets through "
            f"{', '.join((self.transport, *ways))}"
        )

    def logged_clipping(self) -> dict[str, object]:
        """Return how gradients are clipped, for the log."""
        return {
            "mode": self.clip,
            "buckets": len(self.bucket_elements),
            "divisor": self.clip_divisor,
            "limit": self.clip_limit,
            "parts": self.clipped_parts,
        }

    def _clipping(self) -> str:
        """Return how gradients are clipped in words, with a bucket's limit."""
        words = _CLIPPED[self.clip]
        if self.clip == "bucket":
            words += f", each bucket to a norm of {self.clip_limit:.3g}"
        if self.clipped_parts > 1:
            words += f", each of {self.clipped_parts} parts by itself"
        return words
