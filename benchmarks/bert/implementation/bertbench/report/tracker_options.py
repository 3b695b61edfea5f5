"""What the options for work beside a run, --track and --metrics-port, need."""

PACKAGES = {
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),
    "wandb-offline": ("wandb",),
    "metrics": ("prometheus_client",),
}
"""The packages that each tracker, and --metrics-port, needs."""
TRACKERS = tuple(PACKAGES)[:-1]
