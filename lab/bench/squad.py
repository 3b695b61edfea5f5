"""`lab squad`: fine-tune one model on questions in several layouts, and compare each with one rank.

Two things differ between rows: the layout, and the batch size with the number of steps. Rows with the baseline's batch
show the effect of the layout alone: their losses equal the baseline's. A row with a larger batch takes fewer steps on
the same samples. If its scores are lower, the batch is the reason, and statistical efficiency predicts the loss.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch

from bertbench.cli.arguments import add_path
from bertbench.common.errors import ConfigError, RunError
from bertbench.common.progress import Progress
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.config.finetuning_system import load_finetuning
from bertbench.distributed.cores import available_cores
from bertbench.finetune.batches import ids_longest_first, span_batch
from bertbench.finetune.features import make_features
from bertbench.finetune.score import scores_by_group
from bertbench.finetune.span_loss import weighted_span_loss
from bertbench.finetune.span_task import SpanTask
from bertbench.finetune.squad_inputs import Inputs
from bertbench.machine.processor import processor
from bertbench.run_files.log_spans import evaluation_s
from compliance.read.log import read_events
from compliance.read.run import RunFacts
from lab.bench.device_use import gpu_use, processor_use, run_sampled
from lab.bench.harness import BenchResult, alternate, command, option, table_lines
from lab.bench.made_questions import write_questions
from lab.bench.means import geometric_mean
from lab.bench.noise_scale import NoiseScale, noise_scale
from lab.bench.whole_run import last_line

_GRADIENTS = 16  # from which a noise scale is estimated
_BETTER_BY = 10.0  # points of F1 above answering nothing that make scores meaningful


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
            f"finetune.global_batch_size={self.batches * batch}",
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


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Fine-tune in every layout, once for each seed, and estimate the noise scale after the baseline's first epoch."""
    system = load_finetuning(arguments.system)
    batch = system.finetune.global_batch_size
    with tempfile.TemporaryDirectory() as folder:
        files = _files(arguments, Path(folder))
        inputs = _inputs(system, files)
        runs = {
            layout.name: partial(_train, system, files, layout, layout.settings(batch), Path(folder) / layout.name)
            for layout in LAYOUTS
            if system.launch.device == "cpu" or layout.ranks <= system.world_size
        }
        taken = alternate(runs, arguments.seeds, progress=progress)
        noise = [_noise(system, files, Path(folder) / "one epoch", seed) for seed in range(arguments.seeds)]
    nothing = scores_by_group(inputs.dev, {question.id: "" for question in inputs.dev})["f1"]
    rows = [
        row_of_seed(layout, seed, run, taken[BASELINE.name][seed], noise[seed], batch)
        for layout in LAYOUTS
        for seed, run in enumerate(taken.get(layout.name, ()))
    ]
    return BenchResult(rows, _lines(arguments, system, rows, noise, nothing), {"f1_of_no_answers": nothing})


def _files(arguments: argparse.Namespace, folder: Path) -> Files:
    paths = [arguments.train, arguments.dev, arguments.vocab]
    if all(paths):
        return Files(*paths)
    if any(paths):
        raise ConfigError(
            "--train, --dev and --vocab belong together; give all three, or none to use made-up questions"
        )
    return Files(*write_questions(folder, seed=1))


def _inputs(system: System, files: Files, weights: Path | None = None) -> Inputs:
    return Inputs.open(system, files.train, files.dev, files.vocab, weights)


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


def _train(system: System, files: Files, layout: Layout, settings: Sequence[str], folder: Path, seed: int) -> Run:
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
    bubbles = [step["bubble"] for step in steps if "bubble" in step]
    last_epoch = json.loads((out / "scores.json").read_text())["epochs"][-1]
    return Run(
        seconds=(ended_ms - began_ms) / 1e3 - evaluation_s(facts),
        samples=steps[-1]["samples"],
        device_use=device_use,
        bubble=fmean(bubbles) if bubbles else None,
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


def _noise(system: System, files: Files, folder: Path, seed: int) -> NoiseScale:
    """Estimate the noise scale at the weights after one epoch, from gradients of batches of the baseline's size."""
    settings = (*BASELINE.settings(system.finetune.global_batch_size), "finetune.epochs=1")
    _train(system, files, BASELINE, settings, folder, seed)
    inputs = _inputs(system, files, folder / f"seed_{seed + 1}" / "weights.safetensors")
    model = SpanTask(inputs).initial_model(system, seed + 1)
    features = make_features(inputs.train, inputs.vocabulary, system.finetune.windows(system.model.max_positions))
    features = [feature for feature in features if feature.is_labelled]
    size = max(1, min(system.finetune.global_batch_size, len(features) // _GRADIENTS))
    order = np.random.default_rng(derive(seed, "noise")).permutation(len(features))
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = []
    for number in range(_GRADIENTS):
        ids = ids_longest_first(features, order[number * size : (number + 1) * size])
        batch = span_batch([features[place] for place in ids], weight=1 / size)
        weighted_span_loss(model(*batch.inputs), batch).backward()
        gradients.append(
            torch.cat([parameter.grad.flatten() for parameter in parameters if parameter.grad is not None])
        )
        model.zero_grad()
    return noise_scale(torch.stack(gradients), size)


def row_of_seed(layout: Layout, seed: int, run: Run, baseline: Run, noise: NoiseScale, batch: int) -> dict[str, Any]:
    """Return a row of the record: the run of a layout with one seed, compared with the baseline's run of that seed."""
    rate = run.samples / run.seconds
    efficiency = noise.efficiency(layout.batches * batch, batch)
    difference = None
    if len(run.losses) == len(baseline.losses):
        pairs = zip(run.losses, baseline.losses, strict=True)
        difference = max(abs(ours - theirs) for ours, theirs in pairs)
    return {
        "layout": layout.name,
        "seed": seed + 1,
        "ranks": layout.ranks,
        "shares_cores": layout.ranks > available_cores(),
        "global_batch_size": layout.batches * batch,
        "seconds": round(run.seconds, 3),
        "samples_per_s": rate,
        "validation_loss": run.scores["loss"],
        "exact": run.scores["exact"],
        "f1": run.scores["f1"],
        "largest_loss_difference": difference,
        "device_use": run.device_use,
        "bubble": run.bubble,
        "noise_scale": noise._asdict(),
        "statistical_efficiency": efficiency,
        "goodput": rate * efficiency,
        "goodput_ratio": rate * efficiency / (baseline.samples / baseline.seconds),
        "of_baseline": _of_baseline(run, baseline),
    }


def _of_baseline(run: Run, baseline: Run) -> dict[str, float | None]:
    """Return a run's measurements, divided by those of the baseline's run with the same seed."""

    def ratio(measured: float | None, reference: float | None) -> float | None:
        return measured / reference if measured is not None and reference else None

    return {
        "seconds": ratio(run.seconds, baseline.seconds),
        "samples_per_s": ratio(run.samples / run.seconds, baseline.samples / baseline.seconds),
        "validation_loss": ratio(run.scores["loss"], baseline.scores["loss"]),
        "device_use": ratio(run.device_use, baseline.device_use),
    }


_COLUMNS = {
    "layout": "{0[layout]}", "batch": "{0[batch]:,}", "seconds": "{0[seconds]:,.1f}", "samples/s": "{0[rate]:,.0f}",
    "loss": "{0[loss]:.4f}", "exact": "{0[exact]:.1f}", "F1": "{0[f1]:.1f}", "loss differs by": "{0[difference]:.0e}",
    "device use": "{0[use]:.0%}", "bubble": "{0[bubble]:.0%}", "efficiency": "{0[efficiency]:.0%}",
}  # fmt: skip
_RATIO_COLUMNS = {
    "ratio to the baseline": "{0[layout]}", "seconds": "{0[seconds]:}", "samples/s": "{0[samples_per_s]:}",
    "loss": "{0[validation_loss]:}", "device use": "{0[device_use]:}", "goodput": "{0[goodput]:}",
}  # fmt: skip


def _lines(
    arguments: argparse.Namespace,
    system: System,
    rows: Sequence[dict[str, Any]],
    noise: Sequence[NoiseScale],
    nothing: float,
) -> list[str]:
    """Return the tables, and notes about what their numbers don't show."""
    means = []
    ratios = []
    for layout in LAYOUTS:
        seeds = [row for row in rows if row["layout"] == layout.name]
        if seeds:
            means.append(_mean_row(seeds))
        if seeds and layout != BASELINE:
            ratios.append(_ratio_row(seeds))
    estimates = ", ".join(f"{scale.samples:,.0f} ({scale.low:,.0f} to {scale.high:,.0f})" for scale in noise)
    lines = [
        f"{arguments.system}, {system.finetune.epochs} epochs; means of {arguments.seeds} seeds on {available_cores()} "
        f"cores of {processor()}; ratios are geometric means with 95 % intervals.",
        *table_lines(means, _COLUMNS),
        "",
        *table_lines(ratios, _RATIO_COLUMNS),
        "",
        f"Noise scale after one epoch, for each seed, with 95 % intervals: {estimates} samples.",
    ]
    if any(row["shares_cores"] for row in rows):
        lines.append("* has more ranks than cores; they share cores, so the times don't show the effect of the layout")
    best = fmean(row["f1"] for row in rows if row["layout"] == BASELINE.name)
    if best < nothing + _BETTER_BY:
        lines.append(
            f"The baseline's F1, {best:.1f} %, is less than {_BETTER_BY:.0f} points above the F1 without answers, "
            f"{nothing:.1f} %, so only the speeds are meaningful"
        )
    return lines


def _mean_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the means over a layout's seeds, for the table."""
    first = rows[0]
    differences = [row["largest_loss_difference"] for row in rows]
    losses = [row["validation_loss"] for row in rows]
    uses = [row["device_use"] for row in rows]
    bubbles = [row["bubble"] for row in rows]
    return {
        "layout": _marked(first),
        "batch": first["global_batch_size"],
        "seconds": fmean(row["seconds"] for row in rows),
        "rate": fmean(row["samples_per_s"] for row in rows),
        "loss": None if None in losses else fmean(losses),
        "exact": fmean(row["exact"] for row in rows),
        "f1": fmean(row["f1"] for row in rows),
        "difference": None if None in differences else max(differences),
        "use": None if None in uses else fmean(uses),
        "bubble": None if None in bubbles else fmean(bubbles),
        "efficiency": fmean(row["statistical_efficiency"] for row in rows),
    }


def _ratio_row(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the means, over the seeds, of a layout's ratios to the baseline, with their intervals."""
    shown = {"layout": _marked(rows[0])}
    for measure_name in rows[0]["of_baseline"]:
        shown[measure_name] = _ratio_text([row["of_baseline"][measure_name] for row in rows])
    shown["goodput"] = _ratio_text([row["goodput_ratio"] for row in rows])
    return shown


def _ratio_text(ratios: Sequence[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    if len(known) < len(ratios):
        return "-"
    mean, low, high = geometric_mean(known)
    interval = "" if low is None or high is None else f" ({low:.0%} to {high:.0%})"
    return f"{mean:.0%}{interval}"


def _marked(row: dict[str, Any]) -> str:
    """Return the name of a row's layout, with a star if its ranks share cores."""
    return f"{row['layout']}*" if row["shares_cores"] else row["layout"]


add_arguments, run = command(
    measure, ("--seeds", 1, "runs of every layout"),
    more=[
        option("system", nargs="?", default="squad_cpu", metavar="SYSTEM", help="system to tune (default squad_cpu)"),
        lambda parser: add_path(parser, "--train", "FILE", "questions to train on (default: made-up questions)"),
        lambda parser: add_path(parser, "--dev", "FILE", "questions to answer"),
        lambda parser: add_path(parser, "--vocab", "FILE", "the model's vocab.txt"),
    ],
)  # fmt: skip
