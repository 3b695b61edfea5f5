"""Fine-tune: initialise, start the clock, alternate epochs of training with evaluations, and write the results."""

from dataclasses import asdict
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from mlperf_logging.mllog import constants

from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.config.optimizer import OptimizerName
from bertbench.data.store.columns import Integers
from bertbench.distributed.preemption import stop_at_once
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.finetune.batches import SpanSampler, epoch_batches
from bertbench.finetune.features import Feature, make_features
from bertbench.finetune.output import FinetuneFiles
from bertbench.finetune.span_evaluation import evaluate_spans
from bertbench.finetune.span_task import SpanTask
from bertbench.finetune.squad_inputs import Inputs
from bertbench.finetune.squad_system import with_steps
from bertbench.loading.loader import LoadedPart
from bertbench.machine.peak_rate import PeakRate, peak_rate
from bertbench.runs.metrics import FlopRate
from bertbench.runs.mlperf_log import MlperfLog, open_run
from bertbench.training.whole_trainer import WholeTrainer

if TYPE_CHECKING:
    from bertbench.training.layout_trainer import LayoutTrainer

BENCHMARK = "squad_fine_tuning"
"""The benchmark that the log names. It isn't one of MLPerf's, so that no checker takes the log for a result."""
_LOGGED_NAMES: dict[OptimizerName, str] = {"adam": "adamw", "lamb": "lamb", "muon": "muon"}


def finetune(
    system: System, world: World, seed: int, inputs: Inputs, files: FinetuneFiles | None, progress: Progress
) -> list[dict[str, float | None]]:
    """Train for `squad.epochs` and return each one's scores.

    The same seed repeats a run to the bit on a CPU, and apart from the order of atomic additions on CUDA
    (training/train.py). `system` comes from `load_finetuning`; the trainer is that of pre-training.

    Rank 0 writes to `files`, which is None on other ranks. Raises RunError, DataError or CheckpointError; if the
    clock has started, the log then ends with `aborted`.
    """
    stop_at_once()
    step = 0
    samples = 0
    epochs: list[dict[str, float | None]] = []
    with open_run(system, world, files, Startup()) as (log, metrics, clock):
        with clock.init():
            built = _build(system, world, seed, inputs, files, log)
            system = built.system
            sampler = built.sampler
            trainer = built.trainer
            metrics.flop_rate = FlopRate.of(system, built.peak)
            metrics.layout = system.layout if system.layout.pipeline > 1 else None
            steps = system.max_steps
            without_token = len(inputs.train) - len({feature.question for feature in sampler.features})
            dev_without_token = len(inputs.dev) - len({feature.question for feature in built.dev_features})
            for line in inputs.warnings(system.squad.lower_case, without_token, dev_without_token):
                progress.message(line)
            progress.message(
                f"{len(inputs.train):,} questions, {len(sampler.features):,} features, {steps:,} steps; "
                f"starts from {inputs.start}\n{_layout_line(system)}{trainer.describe_step().text()}"
            )

        with clock.run(evaluation_samples=len(inputs.dev)) as run:
            metrics.start()
            for epoch, batches in enumerate(built.batches_by_epoch):
                with run.training(samples, len(sampler.features)):
                    for ids in batches:
                        began = perf_counter()
                        world.watchdog.at("training", step + 1)
                        loaded = sampler.step(ids, built.rank)
                        parts = [LoadedPart(part, batch.to(world.device)) for part, batch in loaded.parts]
                        report = trainer.step(step, parts)
                        step += 1
                        samples += len(ids)
                        step_ms = 1e3 * (perf_counter() - began)
                        metrics.record(step, samples, report, step_ms, loaded)
                        progress.update(step, steps, f"step {step}/{steps}  loss {metrics.last_loss:.3f}")
                    metrics.flush()
                with run.evaluation(), trainer.evaluating():
                    world.watchdog.at("evaluating")
                    evaluated = evaluate_spans(trainer, system, world, inputs, built.dev_features)
                    run.measured(evaluated.f1)
                scores = {"exact": evaluated.exact, "f1": evaluated.f1, "loss": evaluated.loss}
                epochs.append({"steps": step, "samples": samples, **scores})
                progress.message(f"epoch {epoch + 1}/{system.squad.epochs}: {evaluated.text()}")
            run.success()
        world.watchdog.at("writing the model")
        with trainer.evaluating():
            model = trainer.gather_model()
            if files and model is not None:
                description = inputs.description(without_token)
                content = {"inputs": description, "epochs": epochs, "scores": evaluated.scores}
                files.write_predictions(evaluated.predictions, content)
                files.write_model(model, inputs)
        world.barrier()  # a rank that exits sends no heartbeats, and rank 0 would report it as lost
        trainer.close()
    return epochs


def _layout_line(system: System) -> str:
    """Return a line about how ranks split the model; empty text if each rank has the whole model."""
    if not system.parallel.splits:
        return ""
    layout = system.layout
    shards = ", fully sharded" if system.parallel.fully_shard else ""
    return f"layout: data {layout.data} x tensor {layout.tensor} x pipeline {layout.pipeline}{shards}\n"


class _Built(NamedTuple):
    """What this rank has built for a fine-tuning run."""

    system: System
    """The system with its number of steps."""
    sampler: SpanSampler
    rank: int
    """This rank's number among the data-parallel ranks."""
    batches_by_epoch: list[list[Integers]]
    dev_features: list[Feature]
    trainer: "WholeTrainer | LayoutTrainer"
    peak: PeakRate
    """The peak of one device, in the number format of the run."""


def _build(
    system: System, world: World, seed: int, inputs: Inputs, files: FinetuneFiles | None, log: MlperfLog
) -> _Built:
    """Make features, plan all steps, describe the run, and build and warm up the trainer. Collective."""
    options = system.squad
    features, dev_features = _features(system, inputs)
    batches_by_epoch = [
        epoch_batches(len(features), system.global_batch_size, derive(seed, "finetune", epoch))
        for epoch in range(options.epochs)
    ]
    system = with_steps(system, sum(map(len, batches_by_epoch)))
    if files:
        files.describe(system, seed, vocabulary=inputs.vocab_path)
    _log_settings(log, system, seed, inputs, len(features))
    sampler = SpanSampler(features, system.balance.cost, system.layout, system.parts)
    rank = system.layout.coordinate(world.rank).data
    trainer = _trainer(system, world, seed, inputs, sampler.budget(chain.from_iterable(batches_by_epoch), rank))
    peak = peak_rate(system.precision.compute, world)
    if files:
        files.write("communication.json", asdict(trainer.describe_step()))
        files.write("peak.json", asdict(peak))
    return _Built(system, sampler, rank, batches_by_epoch, dev_features, trainer, peak)


def _features(system: System, inputs: Inputs) -> tuple[list[Feature], list[Feature]]:
    """Return the features to train on, and those of the development questions.

    Raises DataError if either are none.
    """
    windows = system.squad.windows(system.model.max_positions)
    features = make_features(inputs.train, inputs.vocabulary, windows)
    features = [feature for feature in features if feature.is_labelled]
    if not features:
        raise DataError(f"{inputs.train_path}: found no token for any answer; give another --train or --vocab")
    dev_features = make_features(inputs.dev, inputs.vocabulary, windows)
    if not dev_features:
        raise DataError(f"{inputs.dev_path}: found no token in any context; give another --dev or --vocab")
    return features, dev_features


def _trainer(system: System, world: World, seed: int, inputs: Inputs, tokens: int) -> "WholeTrainer | LayoutTrainer":
    """Return the warmed-up trainer of this rank's model, or part of it; no batch has more than `tokens` tokens."""
    task = SpanTask(inputs)
    if not system.parallel.splits:
        return WholeTrainer(system, world, seed, task=task)
    from bertbench.training.layout_trainer import LayoutTrainer  # noqa: PLC0415 - only split models need it

    return LayoutTrainer(system, world, seed, tokens, task=task)


def _log_settings(log: MlperfLog, system: System, seed: int, inputs: Inputs, features: int) -> None:
    options, hardware = system.squad, system.hardware
    settings = {
        constants.SUBMISSION_BENCHMARK: BENCHMARK,
        constants.SUBMISSION_ORG: hardware.submitter,
        constants.SUBMISSION_PLATFORM: hardware.system_name,
        constants.SEED: seed,
        constants.GLOBAL_BATCH_SIZE: system.global_batch_size,
        constants.MAX_SEQUENCE_LENGTH: options.windows(system.model.max_positions).max_seq_length,
        constants.GRADIENT_ACCUMULATION_STEPS: system.parts,
        constants.OPT_NAME: _LOGGED_NAMES[system.optimizer.name],
        constants.OPT_BASE_LR: system.optimizer.learning_rate,
        constants.OPT_LR_TRAINING_STEPS: system.max_steps,
        constants.OPT_LR_WARMUP_STEPS: system.schedule.warmup_steps,
        "initial_weights": inputs.weights.source if inputs.weights else "random",
        "train_features": features,
        "eval_metric": "SQuAD F1, percent",
    }
    for key, value in settings.items():
        log.point(key, value)
