"""Weights & Biases without its server: a folder a run, which `wandb sync` uploads where there is a network."""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import wandb

from bertbench.report.feed import Point
from bertbench.report.run_reading import FollowedRun


class Recorder:
    """One run under `out`; an earlier record of the same log there is removed."""

    def __init__(self, run: FollowedRun, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(os.fsencode(run.log.resolve())).hexdigest()[:12]
        for old in (out / "wandb").glob(f"offline-run-*-{name}"):
            shutil.rmtree(old)
        settings = wandb.Settings(
            silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True, x_disable_meta=True
        )
        self._run = wandb.init(
            mode="offline",
            dir=str(out),
            project="bertbench",
            group=run.system,
            name=run.name,
            id=name,
            config=run.parameters(),
            settings=settings,
            reinit="create_new",
        )

    def record(self, points: Sequence[Point]) -> None:
        """Add a row of history a point."""
        for step, time_s, values in points:
            self._run.log({**values, "time_s": time_s}, step=step)

    def close(self, status: str, summary: Mapping[str, float]) -> None:
        """Add the summary, and finish the run."""
        self._run.summary.update({"status": status, **summary})
        self._run.finish(exit_code=0 if status == "success" else 1)
        wandb.teardown()  # waits until its service has written the file; finish does not
