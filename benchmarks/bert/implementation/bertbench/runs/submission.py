"""Log, before the clock starts, who submits what, and everything that decides whether a run is legal.

Names are those of mlperf-logging or of published logs. Our own names begin with bertbench_, and official checkers
ignore them.
"""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np
from mlperf_logging.mllog import constants

from bertbench.balance.plan import STRATIFIED, Planner
from bertbench.common.paths import data_path
from bertbench.config import System
from bertbench.config.sections import Status
from bertbench.data.store.manifest import MANIFEST_NAME, Manifest
from bertbench.loading.inputs import max_predictions
from bertbench.runs.mlperf_log import MlperfLog


def log_submission(log: MlperfLog, system: System, seed: int, technique: str = "every_step") -> None:
    """Log, before the clock starts, everything that defines a run and decides whether its division allows it.

    `technique` is the name of the way in which ranks train together.
    """
    hardware = system.hardware
    submission = {
        constants.SUBMISSION_BENCHMARK: constants.BERT,
        constants.SUBMISSION_DIVISION: hardware.division,
        constants.SUBMISSION_ORG: hardware.submitter,
        constants.SUBMISSION_PLATFORM: hardware.system_name,
        constants.SUBMISSION_STATUS: _LOGGED_STATUS[hardware.status],
        constants.SEED: seed,
    }
    choices = {**_choices(system), "bertbench_sync_method": technique}
    for key, value in {**submission, **_hyperparameters(system), **choices}.items():
        log.point(key, value)


_LOGGED_STATUS: dict[Status, str] = {
    "Available on-premise": constants.ONPREM,
    "Available cloud": constants.CLOUD,
    "Research, Development, or Internal (RDI)": constants.RESEARCH,
    "Preview": "preview",
}
"""A log's value for each value in a system description; rulesets up to 4.0.0 check it."""


def _hyperparameters(system: System) -> dict[str, Any]:
    """Return hyper-parameters under MLPerf's names, or the names in published logs."""
    optimizer = system.optimizer
    schedule = system.learning_rate
    data = data_path(system.data.path)
    logged = {
        constants.GLOBAL_BATCH_SIZE: system.global_batch_size,
        "d_batch_size": system.samples_per_pass,
        constants.GRADIENT_ACCUMULATION_STEPS: system.parts,
        constants.MAX_SEQUENCE_LENGTH: system.model.max_positions,
        "max_predictions_per_seq": max_predictions(Manifest.read(data)) if (data / MANIFEST_NAME).exists() else None,
        constants.OPT_NAME: optimizer.name,
        constants.OPT_BASE_LR: optimizer.learning_rate,
        constants.OPT_LAMB_EPSILON: optimizer.epsilon,
        "opt_epsilon": optimizer.epsilon,  # its name in rulesets up to 2.0.0
        constants.OPT_LAMB_BETA_1: optimizer.beta1,
        constants.OPT_LAMB_BETA_2: optimizer.beta2,
        constants.OPT_LAMB_WEIGHT_DECAY: optimizer.weight_decay,
        constants.OPT_LR_TRAINING_STEPS: schedule.decay_steps,
        constants.OPT_LR_DECAY_STEPS: schedule.decay_steps,
        constants.OPT_LAMB_LR_DECAY_POLY_POWER: schedule.power,
        constants.OPT_END_LR: schedule.end,
        constants.OPT_LR_WARMUP_STEPS: schedule.warmup_steps,
        "num_warmup_steps": schedule.warmup_steps,
        "start_warmup_step": schedule.start_warmup_step,
        constants.OPT_GRADIENT_CLIP_NORM: None if system.clip.mode == "none" else system.clip.max_norm,
    }
    return {key: value for key, value in logged.items() if value is not None}


def _choices(system: System) -> dict[str, Any]:
    """Return, under our own names, what decides legality but has no name in MLPerf's logs; checkers ignore the keys."""
    model = asdict(system.model.shape())
    sizes = ("vocab_size", "hidden_size", "layers", "attention_heads", "feed_forward_size", "max_positions")
    optimizer = system.optimizer
    schedule = system.learning_rate
    choices: dict[str, Any] = {
        "bertbench_schedule": {
            "first_step": schedule.first_step,
            "decay_from_step": schedule.decay_from_step,
            "rates_by_step": schedule.rates_by_step(system.schedule.max_steps),
        },
        "bertbench_model": {name: model[name] for name in sizes},
        "bertbench_hidden_dropout": system.model.hidden_dropout,
        "bertbench_attention_dropout": system.model.attention_dropout,
        "bertbench_checkpoint": system.model.checkpoint is not None,
        "bertbench_loss_normalize": system.loss.normalize,
        "bertbench_ema_decay": system.optimizer.ema_decay,
        "bertbench_clip_mode": system.clip.mode,
        "bertbench_compression": system.communication.compression,
        "bertbench_balance": system.data.balance,
        "bertbench_precision": system.precision.compute,
        "bertbench_target": system.evaluation.target,
        "bertbench_evaluation_interval": system.evaluation_interval,
        "bertbench_max_steps": system.max_steps,
    }
    if optimizer.name == "muon":
        choices["bertbench_optimizer"] = optimizer.muon.model_dump()
    if system.data.balance in STRATIFIED:
        choices["bertbench_strata"] = {"edges": system.data.strata_edges, "quotas": system.data.strata_quotas}
    return choices


def log_samples_by_stratum(log: MlperfLog, planner: Planner, steps: int) -> None:
    """Log how many samples of each stratum of length the ranks have drawn in `steps` steps, if they draw by strata.

    The metadata says how many samples of each stratum the dataset has, and how many passes over it were drawn.
    """
    if planner.balance.method not in STRATIFIED:
        return
    drawn = planner.samples_by_stratum(steps)
    in_dataset = planner.stratum_sizes()
    passes = drawn / np.maximum(in_dataset, 1)
    metadata = {
        "strata_edges": planner.balance.strata_edges,
        "in_dataset": in_dataset.tolist(),
        "passes": passes.round(6).tolist(),
    }
    log.point("bertbench_samples_by_stratum", drawn.tolist(), metadata)


def log_weights(log: MlperfLog, tensors: Iterable[str]) -> None:
    """Log each tensor that was read from a checkpoint; rulesets 1.1 to 2.1 require this."""
    for name in tensors:
        log.point(constants.WEIGHTS_INITIALIZATION, metadata={"tensor": name})
