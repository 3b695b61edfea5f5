"""`lab squad`: fine-tune one model on questions in several layouts, and compare each with one rank.

Two things differ between rows: the layout, and the batch size with the number of steps. Rows with the baseline's batch
show the effect of the layout alone: their losses equal the baseline's. A row with a larger batch takes fewer steps on
the same samples. If its scores are lower, the batch is the reason, and statistical efficiency predicts the loss.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertbench.cli.arguments import add_path
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.distributed.cores import available_cores
from bertbench.finetune.batches import ids_longest_first, span_batch
from bertbench.finetune.features import make_features
from bertbench.finetune.score import scores_by_group
from bertbench.finetune.span_loss import weighted_span_loss
from bertbench.finetune.span_task import SpanTask
from bertbench.finetune.squad_inputs import Inputs
from bertbench.finetune.squad_system import load_finetuning
from lab.bench.harness import BenchResult, alternate, command, option
from lab.bench.made_questions import write_questions
from lab.bench.noise_scale import NoiseScale, noise_scale
from lab.bench.squad_run import BASELINE, LAYOUTS, Files, Layout, Run, fine_tune
from lab.bench.squad_table import squad_lines

_GRADIENTS = 16  # from which a noise scale is estimated


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Fine-tune in every layout, once for each seed, and estimate the noise scale after the baseline's first epoch."""
    system = load_finetuning(arguments.system)
    batch = system.global_batch_size
    with tempfile.TemporaryDirectory() as folder:
        files = _files(arguments, Path(folder))
        inputs = _inputs(system, files)
        runs = {
            layout.name: partial(fine_tune, system, files, layout, layout.settings(batch), Path(folder) / layout.name)
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
    return BenchResult(rows, squad_lines(arguments, system, rows, noise, nothing), {"f1_of_no_answers": nothing})


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


def _noise(system: System, files: Files, folder: Path, seed: int) -> NoiseScale:
    """Estimate the noise scale at the weights after one epoch, from gradients of batches of the baseline's size."""
    settings = (*BASELINE.settings(system.global_batch_size), "squad.epochs=1")
    fine_tune(system, files, BASELINE, settings, folder, seed)
    inputs = _inputs(system, files, folder / f"seed_{seed + 1}" / "weights.safetensors")
    model = SpanTask(inputs).initial_model(system, seed + 1)
    features = make_features(inputs.train, inputs.vocabulary, system.squad.windows(system.model.max_positions))
    features = [feature for feature in features if feature.is_labelled]
    size = max(1, min(system.global_batch_size, len(features) // _GRADIENTS))
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


add_arguments, run = command(
    measure, ("--seeds", 1, "runs of every layout"),
    more=[
        option("system", nargs="?", default="squad_cpu", metavar="SYSTEM", help="system to tune (default squad_cpu)"),
        lambda parser: add_path(parser, "--train", "FILE", "questions to train on (default: made-up questions)"),
        lambda parser: add_path(parser, "--dev", "FILE", "questions to answer"),
        lambda parser: add_path(parser, "--vocab", "FILE", "the model's vocab.txt"),
    ],
)  # fmt: skip
