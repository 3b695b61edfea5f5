"""Fine-tune once in a layout by `bertbench finetune squad`, and read how long it took and how it scored."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bertbench.common.errors import RunError
from bertbench.config import System
from bertbench.distributed.cores import available_cores
from bertbench.runs.log_spans import evaluation_s
from bertbench.runs.trace_format import TRACE_FILE
from bertbench.runs.trace_reader import read_trace_file
from compliance.read.log import read_events
from compliance.read.run import RunFacts
from lab.bench.device_use import gpu_use, processor_use, run_sampled
from lab.bench.whole_run import last_line


class Layout(NamedTuple):
    """One row of the comparison."""

    name: str
    data: int = 1
    pipeline: int = 1
    batches: int = 1
    """Its global batch, as a multiple of the baseline's."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks that it needs."""
        return self.data * self.pipeline

    def settings(self, batch: int) -> tuple[str, ...]:
        """Return the overrides that give a system this layout and batch."""
        stages = (f"parallel.pipeline={self.pipeline}", f"parallel.microbatches={self.pipeline}")
        return (
            f"launch.ranks_per_node={self.ranks}",
            f"data.global_batch_size={self.batches * batch}",
            *(stages if self.pipeline > 1 else ()),
        )


BASELINE = Layout("one rank")
LAYOUTS = (
    BASELINE,
    Layout("data 2", data=2),
    Layout("data 2, batch x 2", data=2, batches=2),
    Layout("pipeline 2", pipeline=2),
    Layout("data 2 x pipeline 2", data=2, pipeline=2),
    Layout("pipeline 4", pipeline=4),
)


class Files(NamedTuple):
    """The files of questions and vocabulary, the same for all runs."""

    train: Path
    dev: Path
    vocab: Path


class Run(NamedTuple):
    """The time and the scores of one fine-tuning run."""

    seconds: float
    """The time from run_start to run_stop, without evaluations."""
    samples: int
    device_use: float | None
    """The share of time from run_start to run_stop in which GPUs, or else cores, were busy; None if unknown."""
    bubble: float | None
    """The share of the steps' time in which ranks of a pipeline wait for other stages; None without a pipeline."""
    losses: list[float]
    scores: dict[str, float]
    """`exact`, `f1` and validation `loss` after the last epoch."""


def fine_tune(system: System, files: Files, layout: Layout, settings: Sequence[str], folder: Path, seed: int) -> Run:
    """Fine-tune on this machine by `bertbench finetune squad`. Raises RunError if it fails."""
    out = folder / f"seed_{seed + 1}"
    words = ["-m", "bertbench", "finetune", "squad", "--system", system.argument, "--out", str(out)]
    words += ["--seed", str(seed + 1)]
    words += ["--train", str(files.train), "--dev", str(files.dev), "--vocab", str(files.vocab)]
    words += [word for setting in settings for word in ("--set", setting)]
    on_gpus = system.launch.device == "cuda"
    if on_gpus:
        done, samples = run_sampled([sys.executable, *words], gpus=layout.ranks)
    else:
        with first_cores(layout.ranks):
            done, samples = run_sampled([sys.executable, *words], gpus=0)
    if done.returncode:
        raise RunError(
            f"{layout.name}: the run failed, seed {seed + 1}, with code {done.returncode}: {last_line(done.stderr)}"
        )
    facts = RunFacts(read_events(out / "mlperf_log.txt"))
    began_ms = facts.started_ms
    ended_ms = facts.stopped_ms
    assert began_ms is not None and ended_ms is not None, "a run that ends in order has a start and a stop"
    if on_gpus:
        device_use = gpu_use(samples, began_ms, ended_ms)
    else:
        device_use = processor_use(samples, began_ms, ended_ms, cores=min(layout.ranks, available_cores()))
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    last_epoch = json.loads((out / "scores.json").read_text())["epochs"][-1]
    return Run(
        seconds=(ended_ms - began_ms) / 1e3 - evaluation_s(facts),
        samples=steps[-1]["samples"],
        device_use=device_use,
        bubble=read_trace_file(out / TRACE_FILE).bubble(),
        losses=[step["loss"] for step in steps],
        scores={name: last_epoch[name] for name in ("exact", "f1", "loss")},
    )


@contextmanager
def first_cores(ranks: int) -> Iterator[None]:
    """Limit this process, and programs that it starts, to one core for each rank, if the machine has enough.

    A core then takes the place of a device. Without this limit, the baseline's single rank would use all cores.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:ranks])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
