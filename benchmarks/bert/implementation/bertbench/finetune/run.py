"""Fine-tune: initialise, start the clock, alternate an epoch of training and an evaluation, write."""

from dataclasses import asdict
from time import perf_counter

import torch
from mlperf_logging.mllog import constants

from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.config.optimizer import LearningRate
from bertbench.distributed.preemption import stop_at_once
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.finetune.batches import epoch_batches, share_of
from bertbench.finetune.features import Feature, make_features
from bertbench.finetune.output import FinetuneFiles
from bertbench.finetune.span_evaluation import evaluate_spans
from bertbench.finetune.span_trainer import SpanTrainer
from bertbench.finetune.squad_inputs import Inputs
from bertbench.loading.loader import LoadedStep
from bertbench.machine.peak_rate import PeakRate, peak_rate
from bertbench.model.bert import Bert
from bertbench.model.span import HEAD, SpanBert
from bertbench.results.flop_rate import FlopRate
from bertbench.results.mlperf_log import MlperfLog
from bertbench.results.opening import open_run

BENCHMARK = "squad_fine_tuning"
"""The log's benchmark, which is not MLPerf's, so that no checker takes it for a result."""


def finetune(
    system: System, world: World, seed: int, inputs: Inputs, files: FinetuneFiles | None, progress: Progress
) -> list[dict[str, float | None]]:
    """Train for `finetune.epochs` and return each one's scores.

    What a seed repeats, to the bit on a CPU and up to the order of atomic additions on CUDA: training/train.py.

    Rank 0 writes to `files`, which is None on other ranks. Raises RunError, DataError or CheckpointError; if the
    clock has started, the log then ends with `aborted`.
    """
    stop_at_once()
    options = system.finetune
    samples = 0
    epochs: list[dict[str, float | None]] = []
    remedy = "lower finetune.learning_rate or raise finetune.warmup_fraction"
    with open_run(system, world, files, Startup(), remedy=remedy) as (log, metrics, clock):
        with clock.init():
            features, dev_features, trainer = _prepared(system, world, seed, inputs)
            metrics.flop_rate = FlopRate.of(system, _recorded_peak(trainer, world, files))
            steps = trainer.schedule.decay_steps
            _log_settings(log, system, seed, inputs, trainer.schedule, len(features))
            without_token = len(inputs.train) - len({feature.question for feature in features})
            for line in inputs.warnings(without_token):
                progress.message(line)
            progress.message(
                f"{len(inputs.train):,} questions, {len(features):,} features, {steps:,} steps; "
                f"starts from {inputs.start}; computes in {trainer.precision}; optimizer: {trainer.arithmetic}"
            )

        with clock.run(evaluation_samples=len(inputs.dev)) as run:
            for epoch in range(options.epochs):
                batches = epoch_batches(len(features), options.global_batch_size, derive(seed, "finetune", epoch))
                with run.training(samples, len(features)):
                    for step, ids in enumerate(batches, start=1 + epoch * len(batches)):
                        began = perf_counter()
                        world.watchdog.at("training", step)
                        share = share_of(features, ids, system.balance.cost, world.rank, world.size)
                        report = trainer.step(step - 1, share)
                        samples += len(ids)
                        step_ms = 1e3 * (perf_counter() - began)
                        loaded = LoadedStep([], share.load_efficiency, counts=share.counts)
                        metrics.record(step, samples, report, step_ms, loaded)
                        progress.update(step, steps, f"step {step}/{steps}  loss {metrics.last_loss:.3f}")
                    metrics.flush()
                with run.evaluation():
                    world.watchdog.at("evaluating")
                    evaluated = evaluate_spans(trainer.model, system, world, inputs, dev_features)
                    exact = evaluated.scores["exact"]
                    f1 = evaluated.scores["f1"]
                    loss = evaluated.loss
                    run.measured(f1)
                epochs.append({"steps": step, "samples": samples, "exact": exact, "f1": f1, "loss": loss})
                shown_loss = "unknown" if loss is None else f"{loss:.4f}"
                text = f"exact {exact:.2f} %, F1 {f1:.2f} %, validation loss {shown_loss}"
                progress.message(f"epoch {epoch + 1}/{options.epochs}: {text}")
            run.success()
    if files:
        scores = {"inputs": inputs.description(without_token), "epochs": epochs, "scores": evaluated.scores}
        files.write_predictions(evaluated.predictions, scores)
        files.write_model(trainer.model, inputs)
    return epochs


def _recorded_peak(trainer: SpanTrainer, world: World, files: FinetuneFiles | None) -> PeakRate:
    """Return the peak of the run's devices, which peak.json keeps. Collective."""
    peak = peak_rate(trainer.precision, world)
    if files:
        files.write("peak.json", asdict(peak))
    return peak


def _prepared(
    system: System, world: World, seed: int, inputs: Inputs
) -> tuple[list[Feature], list[Feature], SpanTrainer]:
    options = system.finetune
    windows = options.windows(system.model.max_positions)
    features = make_features(inputs.train, inputs.vocabulary, windows)
    dev_features = make_features(inputs.dev, inputs.vocabulary, windows)
    features = [feature for feature in features if feature.is_labelled]
    if not features:
        raise DataError(f"{inputs.train_path}: found no token for any answer; give another --train or --vocab")
    steps = options.epochs * -(-len(features) // options.global_batch_size)
    schedule = LearningRate(options.learning_rate, 0.0, int(options.warmup_fraction * steps), 0, steps)
    trainer = SpanTrainer(system, world, starting_model(system, inputs, seed).to(world.device), schedule)
    torch.manual_seed(derive(seed, "dropout", world.rank))
    return features, dev_features, trainer


def starting_model(system: System, inputs: Inputs, seed: int) -> SpanBert:
    """Return the model before the first step; missing weights are drawn from the seed.

    Raises CheckpointError if the weights can't be read.
    """
    bert = Bert(system.model.shape())
    if inputs.weights is None:
        bert.initialize(torch.Generator().manual_seed(derive(seed, "weights")))
    else:
        inputs.weights.put_into(bert)
    model = SpanBert(bert)
    model.initialize_head(torch.Generator().manual_seed(derive(seed, HEAD)))
    if inputs.weights is not None and inputs.weights.has_span_head:
        tensors = inputs.weights.read()
        model.span.load_state_dict({name: tensors[f"{HEAD}.{name}"] for name in model.span.state_dict()})
    return model


def _log_settings(
    log: MlperfLog, system: System, seed: int, inputs: Inputs, schedule: LearningRate, features: int
) -> None:
    options, hardware = system.finetune, system.hardware
    settings = {
        constants.SUBMISSION_BENCHMARK: BENCHMARK,
        constants.SUBMISSION_ORG: hardware.submitter,
        constants.SUBMISSION_PLATFORM: hardware.system_name,
        constants.SEED: seed,
        constants.GLOBAL_BATCH_SIZE: options.global_batch_size,
        constants.MAX_SEQUENCE_LENGTH: options.windows(system.model.max_positions).max_seq_length,
        constants.OPT_NAME: "adamw",
        constants.OPT_BASE_LR: options.learning_rate,
        constants.OPT_LR_TRAINING_STEPS: schedule.decay_steps,
        constants.OPT_LR_WARMUP_STEPS: schedule.warmup_steps,
        "initial_weights": inputs.weights.source if inputs.weights else "random",
        "train_features": features,
        "eval_metric": "SQuAD F1, percent",
    }
    for key, value in settings.items():
        log.point(key, value)
