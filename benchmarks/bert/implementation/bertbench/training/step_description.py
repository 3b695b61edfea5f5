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
    """The number of elements in each bucket, in the order of reduction."""
    bytes_per_step: int
    """Bytes of gradients that one rank contributes to the sums of a step."""
    model_arithmetic: str
    optimizer_arithmetic: str
    technique: str = "every_step"
    """The name of a study's technique; if ranks train independently, `bytes_per_step` is a step's share of what they
    exchange."""

    clips_the_sum: bool = False
    """Whether the sum is clipped: in mode `after`, and in mode `before` if the sum is a single contribution."""
    clip_limit: float | None = None
    """The largest norm after clipping, of a bucket in mode `bucket`, else of a gradient; None if nothing is clipped."""
    clip_divisor: int = 1
    """The number by whose square root `clip.max_norm` was divided to get `clip_limit`."""
    clipped_parts: int = 1
    """How many parts of a rank's batch are clipped separately; 1 if their sum is clipped."""
    transport: str = "collectives"
    """`collectives` for torch's, or `shared memory` for ranks on one machine."""

    def text(self) -> str:
        """Return the lines for the run's output; communication.json has all details."""
        buckets, mebibytes = len(self.bucket_elements), GRADIENT_BYTES * sum(self.bucket_elements) / 2**20
        ways = [name for name in (self.technique, self.compression) if name not in ("every_step", "none")]
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
        """Return a text that says how gradients are clipped, with a bucket's limit."""
        words = _CLIPPED[self.clip]
        if self.clip == "bucket":
            words += f", each bucket to a norm of {self.clip_limit:.3g}"
        if self.clip == "before" and self.clips_the_sum:
            words += ", which is after it for a single rank's gradient"
        if self.clipped_parts > 1:
            words += f", each of {self.clipped_parts} parts separately"
        return words
