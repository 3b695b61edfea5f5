"""Fine-tune: initialise, start the clock, alternate an epoch of training and an evaluation, write."""

import time
from typing import NamedTuple

import torch
from mlperf_logging.mllog import constants

from bertbench.common.progress import Progress
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.config.schedule import Schedule
from bertbench.distributed.preemption import stop_at_once
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.finetune.batches import epoch_batches, share_of
from bertbench.finetune.evaluate import DevQuestions, Evaluated
from bertbench.finetune.features import make_features
from bertbench.finetune.files import FinetuneFiles
from bertbench.finetune.inputs import Inputs
from bertbench.finetune.step import SpanTrainer
from bertbench.loading.loader import LoadedStep
from bertbench.model.bert import Bert
from bertbench.model.span import HEAD, SpanBert
from bertbench.results.mlperf_log import MlperfLog
from bertbench.results.opening import open_run

BENCHMARK = "squad_fine_tuning"
"""The log's benchmark, which is not MLPerf's, so that no checker takes it for a result."""


class Epoch(NamedTuple):
    """One epoch's training and evaluation."""

    steps: int
    """Since the start."""
    samples: int
    evaluated: Evaluated


def finetune(
    system: System, world: World, seed: int, inputs: Inputs, files: FinetuneFiles | None, progress: Progress
) -> list[Epoch]:
    """Train for `finetune.epochs`, evaluating after each; the same seed on the same machine gives the same losses.

    Rank 0 writes to `files`, which is None on other ranks. Raises RunError, DataError or CheckpointError; if the
    clock has started, the log then ends with `aborted`.
    """
    stop_at_once()
    options, epochs = system.finetune, []
    remedy = "lower finetune.learning_rate or raise finetune.warmup_fraction"
    with open_run(system, world, files, Startup(), remedy=remedy) as (log, metrics, clock):
        with clock.init():
            windows = options.windows(system.model.max_positions)
            training = make_features(inputs.train, inputs.vocabulary, windows)
            dev = DevQuestions(
                system, world, inputs.dev, make_features(inputs.dev, inputs.vocabulary, windows), inputs.may_abstain
            )
            steps = options.epochs * -(-len(training) // options.global_batch_size)
            schedule = Schedule(options.learning_rate, 0.0, int(options.warmup_fraction * steps), 0, steps)
            model = starting_model(system, inputs, seed).to(world.device)
            trainer = SpanTrainer(system, world, model, schedule)
            torch.manual_seed(derive(seed, "dropout", world.rank))
            _log_settings(log, system, seed, inputs, schedule, len(training))
            progress.message(
                f"{len(inputs.train):,} questions, {len(training):,} features, {steps:,} steps; "
                f"starts from {_start(inputs)}; optimizer: {trainer.arithmetic}"
            )

        with clock.run(evaluation_samples=len(inputs.dev)) as run:
            step = 0
            for epoch in range(options.epochs):
                samples = epoch * len(training)
                batches = epoch_batches(len(training), options.global_batch_size, derive(seed, "finetune", epoch))
                with run.training(samples, len(training)):
                    for ids in batches:
                        began = time.perf_counter()
                        share = share_of(training, ids, system.balance.cost, world.rank, world.size)
                        world.watchdog.at("training", step + 1)
                        report = trainer.step(step, share)
                        step, samples = step + 1, samples + len(ids)
                        step_ms = 1e3 * (time.perf_counter() - began)
                        metrics.record(step, samples, report, step_ms, LoadedStep([], share.load_efficiency))
                        rate = 1e3 * len(ids) / step_ms
                        progress.update(
                            step, steps, f"step {step}/{steps}  {rate:,.1f} features/s  loss {metrics.last_loss:.3f}"
                        )
                    metrics.flush()
                with run.evaluation():
                    world.watchdog.at("evaluating")
                    evaluated = dev.evaluate(model)
                    run.measured(evaluated.scores["f1"])
                epochs.append(Epoch(step, samples, evaluated))
                progress.message(
                    f"epoch {epoch + 1}/{options.epochs}: exact {evaluated.scores['exact']:.2f} %, "
                    f"F1 {evaluated.scores['f1']:.2f} %, validation loss {evaluated.loss:.4f}"
                )
            run.success()
    if files:
        files.write_predictions(evaluated.predictions, _scores(inputs, epochs))
        files.write_model(model, inputs)
    return epochs


def starting_model(system: System, inputs: Inputs, seed: int) -> SpanBert:
    """Return the model before the first step; missing weights are drawn from the seed.

    Raises CheckpointError if the weights can't be read.
    """
    bert, generator = Bert(system.model.shape()), torch.Generator().manual_seed(derive(seed, "weights"))
    if inputs.weights is None:
        bert.initialize(generator)
    else:
        inputs.weights.put_into(bert)
    model = SpanBert(bert)
    model.initialize_head(torch.Generator().manual_seed(derive(seed, HEAD)))
    if inputs.weights is not None and inputs.weights.has_span_head:
        tensors = inputs.weights.read()
        model.span.load_state_dict({name: tensors[f"{HEAD}.{name}"] for name in model.span.state_dict()})
    return model


def _start(inputs: Inputs) -> str:
    if inputs.weights is None:
        return "random weights (--init gives others)"
    head = "its own span head" if inputs.weights.has_span_head else "a new span head"
    return f"{inputs.weights.path} ({inputs.weights.source}) with {head}"


def _log_settings(log: MlperfLog, system: System, seed: int, inputs: Inputs, schedule: Schedule, features: int) -> None:
    options, hardware = system.finetune, system.hardware
    log.point(constants.SUBMISSION_BENCHMARK, BENCHMARK)
    log.point(constants.SUBMISSION_ORG, hardware.submitter)
    log.point(constants.SUBMISSION_PLATFORM, hardware.system_name)
    log.point(constants.SEED, seed)
    log.point(constants.GLOBAL_BATCH_SIZE, options.global_batch_size)
    log.point(constants.MAX_SEQUENCE_LENGTH, options.windows(system.model.max_positions).max_seq_length)
    log.point(constants.OPT_NAME, "adamw")
    log.point(constants.OPT_BASE_LR, options.learning_rate)
    log.point(constants.OPT_LR_TRAINING_STEPS, schedule.decay_steps)
    log.point(constants.OPT_LR_WARMUP_STEPS, schedule.warmup_steps)
    log.point("initial_weights", inputs.weights.source if inputs.weights else "random")
    log.point("train_features", features)
    log.point("eval_metric", "SQuAD F1, percent")


def _scores(inputs: Inputs, epochs: list[Epoch]) -> dict[str, object]:
    """Return the content of scores.json."""
    return {
        "inputs": inputs.description(),
        "epochs": [
            {
                "steps": epoch.steps,
                "samples": epoch.samples,
                "exact": epoch.evaluated.scores["exact"],
                "f1": epoch.evaluated.scores["f1"],
                "loss": epoch.evaluated.loss,
            }
            for epoch in epochs
        ],
        "scores": epochs[-1].evaluated.scores,
    }
