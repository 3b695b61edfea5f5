"""Taking snapshots while the run goes on, and loading one: torch's distributed checkpoint on its own process group.

A save copies the state to main memory, which the step loop waits for; a thread writes it while training goes on.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import torch
from torch.distributed import ProcessGroup, checkpoint
from torch.distributed.checkpoint.api import CheckpointException

from bertbench import __version__
from bertbench.config import System
from bertbench.errors import CheckpointError, RunError, system_reason
from bertbench.metrics import Metrics
from bertbench.parallel.trainer import AnyTrainer
from bertbench.results import ResultFiles
from bertbench.resume.snapshot import Meta, partial_folder, publish, to_disk
from bertbench.seeding import derive
from bertbench.world import World


class Snapshots:
    """The snapshots of one run; every rank makes one and calls the same methods after the same steps."""

    def __init__(self, system: System, world: World, seed: int, files: ResultFiles | None) -> None:
        self._system = system
        self._world = world
        self._seed = seed
        self._files = files
        self._folder = Path(world.from_all(str(files.snapshots) if files else "")[0])
        self._publisher = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._pending: Future[None] | None = None

    def save_if_due(
        self, trainer: AnyTrainer, step: int, evaluations: list[tuple[int, float]], metrics: Metrics
    ) -> None:
        """Where one is due after `step` steps, copy the state and begin to write it, once the one before is written.

        Raises RunError if that one could not be written.
        """
        every = self._system.checkpoint.every_steps
        if every is None or step % every:
            return
        metrics.flush()  # the lines up to here must be there before the snapshot is
        self.wait()
        state = {**trainer.state(), **self._random_state()}
        if self._files:
            meta = Meta(
                step=step,
                samples=step * self._system.global_batch_size,
                seed=self._seed,
                saved_at=datetime.now(UTC).isoformat(timespec="seconds"),
                nodes=self._system.hardware.number_of_nodes,
                ranks=self._world.size,
                evaluations=tuple(evaluations),
                log_bytes=self._files.log.stat().st_size,
                bertbench=__version__,
                torch=torch.__version__,
                config=self._system.model_dump(mode="json", by_alias=True),
            )
        writer = checkpoint.FileSystemWriter(partial_folder(self._folder, step), sync_files=True)
        written = checkpoint.async_save(state, storage_writer=writer, process_group=self._group)
        assert isinstance(written, Future)
        self._pending = self._publisher.submit(self._publish, written, meta if self._files else None)

    def wait(self) -> None:
        """Wait until the snapshot that was begun is there; raises RunError if it could not be written."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            pending.result()
        except (OSError, CheckpointException) as error:
            raise RunError(
                f"{self._folder}: a snapshot can't be written ({_reason(error)}); make room there, move LOGDIR, or "
                "set checkpoint.every_steps to null"
            ) from error

    def load(self, trainer: AnyTrainer, path: Path, meta: Meta) -> None:
        """Put the state of a snapshot into a new trainer, of any layout; random states only where that is the same.

        Raises CheckpointError if it doesn't fit the model and the optimizer.
        """
        random = self._random_state()
        same_ranks = (
            meta.ranks == self._world.size and meta.config.get("parallel") == self._system.parallel.model_dump()
        )
        try:
            checkpoint.load(
                {**trainer.state(), **(random if same_ranks else {})},
                storage_reader=checkpoint.FileSystemReader(path),
                process_group=self._group,
            )
        except CheckpointException as error:
            raise CheckpointError(
                f"{path}: doesn't fit this run ({_reason(error)}); undo the changes of model, optimizer and precision"
            ) from error
        trainer.resume(meta.step)
        if same_ranks:
            torch.set_rng_state(random[self._random_name("cpu")])
            if self._world.device.type == "cuda":
                torch.cuda.set_rng_state(random[self._random_name("cuda")], self._world.device)
        else:
            torch.manual_seed(derive(self._seed, "dropout", self._system.layout.stream(self._world.rank), meta.step))

    def close(self) -> None:
        """Wait for the last snapshot; after the last step."""
        self.wait()
        self._publisher.shutdown()

    @cached_property
    def _group(self) -> ProcessGroup:
        """Its own, so that the thread meets no collective of training."""
        return self._world.neighbours(self._world.size)

    def _publish(self, written: Future[object], meta: Meta | None) -> None:
        """In the thread: on rank 0 the save is done when all ranks have written."""
        written.result()
        if self._files and meta:
            to_disk(self._files.log)
            to_disk(self._files.metrics)
            publish(self._folder, meta, self._system.checkpoint.keep)

    def _random_state(self) -> dict[str, torch.Tensor]:
        states = {self._random_name("cpu"): torch.get_rng_state()}
        if self._world.device.type == "cuda":
            states[self._random_name("cuda")] = torch.cuda.get_rng_state(self._world.device)
        return states

    def _random_name(self, device: str) -> str:
        return f"random.{self._world.rank}.{device}"


def _reason(error: OSError | CheckpointException) -> str:
    """Why, in a line: of the first rank that failed."""
    if isinstance(error, OSError):
        return system_reason(error)
    rank, (cause, _) = min(error.failures.items())
    return f"rank {rank}: {str(cause).splitlines()[0] if str(cause) else type(cause).__name__}"
