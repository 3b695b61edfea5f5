"""Options for work beside a run, off by default: --track and --metrics-port."""

from dataclasses import dataclass

PACKAGES = {
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),
    "wandb-offline": ("wandb",),
    "metrics": ("prometheus_client",),
}
"""The packages that each tracker, and --metrics-port, needs."""
TRACKERS = tuple(PACKAGES)[:-1]


@dataclass(frozen=True)
class SideWork:
    """What side processes do."""

    track: tuple[str, ...] = ()
    """Trackers by name."""
    metrics_port: str | None = None
    """Where OpenMetrics are served: PORT or HOST:PORT."""

    def __bool__(self) -> bool:
        return bool(self.track or self.metrics_port)
