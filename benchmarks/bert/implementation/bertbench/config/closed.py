"""What MLPerf's closed division fixes (training_rules.adoc, section on hyper-parameters and optimizers)."""

from collections.abc import Iterator

from bertbench.config.rule import rule
from bertbench.config.settings import Settings


@rule("optimizer.name", "hardware.division")
def _optimizer(settings: Settings) -> Iterator[str]:
    if settings.hardware.division == "closed" and settings.optimizer.name != "lamb":
        yield (
            f"optimizer.name {settings.optimizer.name} is not allowed in the closed division; use lamb, or set "
            "hardware.division to open"
        )


@rule("clip.mode", "hardware.division")
def _clip_mode(settings: Settings) -> Iterator[str]:
    if settings.hardware.division == "closed" and settings.clip.mode not in ("after", "before"):
        yield (
            f"clip.mode {settings.clip.mode} is not allowed in the closed division; use after or before, or set "
            "hardware.division to open"
        )


CLOSED_RULES = (_optimizer, _clip_mode)
