"""Save snapshots during training, and load one, with torch's distributed checkpoint on a process group of its own.

The step loop waits while a save copies the state to main memory; a thread then writes it during training.
"""

import shutil
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from bertbench import __version__
from bertbench.checkpoint.snapshot_folder import Meta, partial_folder, publish, to_disk
from bertbench.common.errors import CheckpointError, system_reason
from bertbench.common.json_object import JsonObject
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.distributed import evidence
from bertbench.distributed.world import World
from bertbench.runs.files import ResultFiles
from bertbench.runs.metrics import Metrics
from bertbench.runs.trace_format import SNAPSHOT


class Checkpointable(Protocol):
    """A trainer whose state can be saved and restored."""

    def state(self) -> dict[str, Tensor]:
        """Return the state that later steps depend on, without a copy."""

    def resume(self, steps: int) -> None:
        """Continue after `steps` steps, once their `state` is restored."""


class Snapshots:
    """The snapshots of one run; every rank has an instance and calls the same methods after the same steps."""

    def __init__(
        self,
        system: System,
        configuration: JsonObject,
        world: World,
        seed: int,
        files: ResultFiles | None,
        possible: bool = True,
    ) -> None:
        """Record `configuration` in each snapshot. `possible` is whether a trainer's state is all that it needs."""
        self._system = system
        self._configuration = configuration
        self._world = world
        self._seed = seed
        self._files = files
        self._folder = Path(world.from_all(str(files.snapshots) if files else "")[0])
        world.watchdog.leave_evidence_in(self._folder.with_name(evidence.FOLDER))
        self._possible = possible
        self._publisher = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        if system.checkpoint.every_steps is not None:
            import bertbench.checkpoint.state_files  # noqa: F401, PLC0415 - before the clock starts
        self._pending: Future[None] | None = None
        self._step: int | None = None  # of the last snapshot begun

    def save_if_due(
        self, trainer: Checkpointable, step: int, evaluations: list[tuple[int, float]], metrics: Metrics
    ) -> None:
        """Save a snapshot if one is due after `step` steps, once the previous one is written."""
        every = self._system.checkpoint.every_steps
        if every is not None and step % every == 0:
            self._save(trainer, step, evaluations, metrics)

    def save_last(
        self, trainer: Checkpointable, step: int, evaluations: list[tuple[int, float]], metrics: Metrics
    ) -> None:
        """Save a snapshot after `step` steps, due or not, if one is possible; return when it is written."""
        if self._possible and step != self._step:
            self._save(trainer, step, evaluations, metrics)
        metrics.trace.begin(SNAPSHOT, step=step)
        self.wait()
        self._world.barrier()  # until rank 0 has published it
        metrics.trace.ended()

    def _save(self, trainer: Checkpointable, step: int, evaluations: list[tuple[int, float]], metrics: Metrics) -> None:
        """Copy the state once the previous snapshot is written, and begin to write it."""
        from bertbench.checkpoint.state_files import begin_write  # noqa: PLC0415 - most runs take no snapshot

        self._step = step
        metrics.flush()  # earlier lines must be on disk before the snapshot
        with metrics.trace.interrupted_by(SNAPSHOT, step=step):
            self.wait()
            state = {**trainer.state(), **self._random_state()}
            meta = self._meta(self._files, step, evaluations) if self._files else None
            written = begin_write(state, partial_folder(self._folder, step), self._group)
            self._pending = self._publisher.submit(self._publish, step, written, meta)

    def _meta(self, files: ResultFiles, step: int, evaluations: list[tuple[int, float]]) -> Meta:
        return Meta(
            step=step,
            samples=step * self._system.global_batch_size,
            seed=self._seed,
            saved_at=datetime.now(UTC).isoformat(timespec="seconds"),
            nodes=self._system.hardware.number_of_nodes,
            ranks=self._world.size,
            evaluations=tuple(evaluations),
            log_bytes=files.log.stat().st_size,
            bertbench=__version__,
            torch=torch.__version__,
            config=self._configuration,
        )

    def wait(self) -> None:
        """Wait until the pending snapshot is written, or has failed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            self._world.watchdog.at("writing a snapshot")
            pending.result()

    def load(self, trainer: Checkpointable, path: Path, meta: Meta) -> None:
        """Load a snapshot into a new trainer of any layout; random states are restored only for the same layout.

        Raises CheckpointError if it doesn't fit the model and the optimizer.
        """
        from bertbench.checkpoint.state_files import read_state  # noqa: PLC0415

        random = self._random_state()
        same_layout = meta.config["parallel"] == self._system.parallel.model_dump()
        same_ranks = meta.ranks == self._world.size and same_layout
        read_state({**trainer.state(), **(random if same_ranks else {})}, path, self._group)
        trainer.resume(meta.step)
        if same_ranks:
            for set_state, state in zip((torch.set_rng_state, torch.cuda.set_rng_state), random.values(), strict=False):
                set_state(state)
        else:
            torch.manual_seed(derive(self._seed, "dropout", self._system.layout.stream(self._world.rank), meta.step))

    def close(self) -> None:
        """Wait for the last snapshot, after the last step."""
        self.wait()
        self._publisher.shutdown()

    @cached_property
    def _group(self) -> ProcessGroup:
        """Return a separate process group, so that the thread's collectives can't meet those of training."""
        return self._world.neighbours(self._world.size)

    def _publish(self, step: int, written: Future[object], meta: Meta | None) -> None:
        """Publish the snapshot, in the thread; rank 0 does so once all ranks have written.

        A failed save doesn't end the run. Rank 0 removes its files at once, because the log may need their disk space,
        and warns that a restart would resume from the previous snapshot.
        """
        from bertbench.checkpoint.state_files import end_write  # noqa: PLC0415

        try:
            end_write(written)
            if self._files and meta:
                to_disk(self._files.log)
                to_disk(self._files.metrics)
                publish(self._folder, meta, self._system.checkpoint.keep)
        except (OSError, CheckpointError) as error:  # all ranks fail alike, or rank 0 alone while it publishes
            if self._files:
                shutil.rmtree(partial_folder(self._folder, step), ignore_errors=True)
                reason = system_reason(error) if isinstance(error, OSError) else str(error)
                print(
                    f"warning: {self._folder}: the snapshot of step {step} can't be written ({reason}); "
                    "training continues, but a restart would resume from the previous snapshot",
                    file=sys.stderr,
                    flush=True,
                )

    def _random_state(self) -> dict[str, Tensor]:
        """Return the state of the CPU's random generator and, on a GPU, that of the GPU's."""
        states = {f"random.{self._world.rank}.cpu": torch.get_rng_state()}
        if self._world.device.type == "cuda":
            states[f"random.{self._world.rank}.cuda"] = torch.cuda.get_rng_state()
        return states
