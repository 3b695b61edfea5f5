"""Rules about replayed steps: graphs (`compute.compile`) need steps whose sizes and kernels are always the same."""

from bertbench.config.rules import Rule, allow_only
from bertbench.config.settings import Settings

UNSCALED = ("fp32", "bf16", "auto")
"""Formats without scales. fp16 has a scale of the loss and fp8 has scales of tensors, which change from step to step.
"""


def _replays(settings: Settings) -> bool:
    return settings.compute.compile == "graphs"


def _replayed_models_are_whole(settings: Settings) -> str | None:
    if not _replays(settings) or not settings.parallel.splits:
        return None
    return "compute.compile graphs is for whole models; leave parallel out, or set compute.compile to default"


def _replayed_attention_has_a_fixed_size(settings: Settings) -> str | None:
    on_gpu = settings.launch.device == "cuda"
    if not (_replays(settings) and on_gpu and settings.precision.compute == "fp32"):
        return None
    return (
        "compute.compile graphs on cuda needs attention of a fixed size, which torch's flash kernel has in "
        "half precision only; set precision.compute to bf16, or compute.compile to default"
    )


def _replayed_parts_are_clipped_together(settings: Settings) -> str | None:
    if not _replays(settings) or settings.clipped_parts == 1:
        return None
    return (
        "compute.compile graphs replays parts of a batch that add to one gradient, but clip.parts each clips every "
        "part before it is added; set clip.parts to sum, or compute.compile to default"
    )


GRAPH_RULES: tuple[Rule, ...] = (
    *allow_only(
        {
            "optimizer.name": ("lamb", "adam"),
            "optimizer.ema_decay": (0.0,),  # it counts steps on the host, as apex does
            "optimizer.impl": ("auto", "torch", "triton"),
            "communication.compression": ("none", "bf16"),  # fp16 needs a loss scale
            "precision.compute": (*UNSCALED, "fp8"),  # fp16 may skip steps
        },
        where=_replays,
        because="can't be replayed by compute.compile graphs",
        instead="compute.compile to default",
    ),
    _replayed_models_are_whole,
    _replayed_parts_are_clipped_together,
    _replayed_attention_has_a_fixed_size,
)
