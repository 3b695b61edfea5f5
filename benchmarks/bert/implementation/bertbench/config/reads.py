"""Declare what each command reads of a system file, so that no setting that a user gives is ignored.

Every command has one declaration here, which says how it reads each setting. config/unread.py acts on it.
A new setting of config/ has no declaration; a test fails until it has one for each command.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from bertbench.balance.plan import EXCHANGING, STRATIFIED
from bertbench.config.settings import Settings
from bertbench.model.options import LEAST_WIDTH


class Plain(Enum):
    """How a command reads a setting under all conditions."""

    READ = "the command honours it"
    NO_EFFECT = "it can't change the command's result, so it is accepted"


READ = Plain.READ
NO_EFFECT = Plain.NO_EFFECT


@dataclass(frozen=True)
class Unread:
    """A setting that the command can't honour."""

    remedy: str
    """What can honour it, or what to do."""
    goes_by: tuple[object, ...] = ()
    """The values that say what the command does anyway; they are accepted."""

    def passes(self, value: object) -> bool:
        """Return whether this value says what the command does anyway; true and 1 are different values here."""
        return any(type(value) is type(allowed) and value == allowed for allowed in self.goes_by)


@dataclass(frozen=True)
class ReadWhere:
    """A setting that the command honours under a condition on other settings."""

    holds: Callable[[Settings], object]
    needs: str
    """The condition, for people."""


@dataclass(frozen=True)
class ReadAs:
    """A setting that the command honours for some values only."""

    values: tuple[object, ...]
    because: str
    """Why it can't honour others."""


Reading = Plain | Unread | ReadWhere | ReadAs
Declaration = Mapping[str, Reading]
"""How a command reads each setting. A section's name stands for all its settings. The longest name that fits a setting
counts; `*` fits all others."""

_RESULT_ONLY = "a whole run honours it; leave it out here"


def _unread(remedy: str, *goes_by: object) -> Unread:
    return Unread(remedy, goes_by)


def _can_multiply_by_onednn(settings: Settings) -> bool:
    whole_on_cpu = settings.launch.device == "cpu" and not settings.parallel.splits
    return whole_on_cpu and settings.model.hidden_size >= LEAST_WIDTH


# Settings that a run reads only if another setting asks for what they describe.
_CONDITIONAL: Declaration = {
    "model.initializer_range": ReadWhere(lambda s: s.model.checkpoint is None, "no model.checkpoint"),
    "model.initial_weights": ReadWhere(lambda s: s.model.checkpoint is None, "no model.checkpoint"),
    "data.equal_counts": ReadWhere(
        lambda s: s.data.balance in ("planned", "planned_local"), "data.balance planned or planned_local"
    ),
    "data.deal": ReadWhere(lambda s: s.data.balance in EXCHANGING, f"data.balance {' or '.join(EXCHANGING)}"),
    "data.strata_edges": ReadWhere(
        lambda s: s.data.balance in STRATIFIED, "data.balance stratified or stratified_presort"
    ),
    "data.strata_quotas": ReadWhere(
        lambda s: s.data.balance in STRATIFIED, "data.balance stratified or stratified_presort"
    ),
    "optimizer.muon": ReadWhere(lambda s: s.optimizer.name == "muon", "optimizer.name muon"),
    "schedule.start_warmup_step": ReadWhere(  # 0 is the start of a schedule without warm-up, too
        lambda s: s.schedule.warmup_steps or s.schedule.start_warmup_step == 0, "schedule.warmup_steps above 0"
    ),
    "schedule.decay_from": ReadWhere(  # from step 0 the decay is counted without warm-up, too
        lambda s: s.schedule.warmup_steps or s.schedule.decay_from == "step_0", "schedule.warmup_steps above 0"
    ),
    "clip.max_norm": ReadWhere(lambda s: s.clip.mode != "none", "clip.mode after, before or bucket"),
    "clip.divisor": ReadWhere(lambda s: s.clip.mode == "bucket", "clip.mode bucket"),
    "clip.parts": ReadWhere(
        lambda s: s.clip.mode in ("before", "bucket") and s.data.gradient_accumulation_steps > 1,
        "clip.mode before or bucket and data.gradient_accumulation_steps above 1",
    ),
    "communication.buckets": ReadWhere(
        lambda s: not s.parallel.splits, "whole models: a split model's gradients have no buckets"
    ),
    "communication.topk_share": ReadWhere(
        lambda s: s.communication.compression == "topk", "communication.compression topk"
    ),
    "communication.powersgd_rank": ReadWhere(
        lambda s: s.communication.compression == "powersgd", "communication.compression powersgd"
    ),
    "communication.powersgd_start_step": ReadWhere(
        lambda s: s.communication.compression == "powersgd", "communication.compression powersgd"
    ),
    "communication.bucket_mb": ReadWhere(
        lambda s: not s.parallel.splits, "whole models: a split model's gradients have no buckets"
    ),
    "sync.every_steps": ReadWhere(lambda s: s.sync.outer is not None, "sync.method local_sgd or diloco"),
    "sync.outer_learning_rate": ReadWhere(lambda s: s.sync.method == "diloco", "sync.method diloco"),
    "sync.outer_momentum": ReadWhere(lambda s: s.sync.method == "diloco", "sync.method diloco"),
    "sync.delay_steps": ReadWhere(lambda s: s.sync.method == "delayed", "sync.method delayed"),
    "sync.correction_steps": ReadWhere(lambda s: s.sync.delay, "sync.method delayed and sync.delay_steps above 0"),
    "precision.initial_loss_scale": ReadWhere(
        lambda s: s.scales_loss, "gradients in fp16: precision.compute or communication.compression fp16"
    ),
    "compute.products": ReadWhere(  # any other run multiplies by torch's own products, so it accepts `torch`, too
        lambda s: s.compute.products == "torch" or _can_multiply_by_onednn(s),
        f"whole models on CPUs with model.hidden_size of at least {LEAST_WIDTH}",
    ),
    "parallel.schedule": ReadWhere(lambda s: s.parallel.pipeline > 1, "parallel.pipeline above 1"),
}

_TRAIN: Declaration = {
    **dict.fromkeys(Settings.model_fields, READ),
    **_CONDITIONAL,
    "data.recipe": READ,  # compared with the dataset's manifest (loading/inputs.py)
    "squad": _unread("`bertbench finetune squad` reads that section"),
}
_SHORT: Declaration = {
    "evaluation.interval_samples": _unread(f"it evaluates once, after its last step; {_RESULT_ONLY}"),
    "evaluation.max_samples": _unread(f"its number of steps is fixed; {_RESULT_ONLY}"),
    "checkpoint.final_weights": _unread(f"it writes no weights; {_RESULT_ONLY}", False),
}
_ALONE = "`bertbench train`, which has its own process, honours it"
_IN_PROCESS: Declaration = {
    "launch.port": _unread(f"a single rank has no others to meet; {_ALONE}", 0),
    "launch.stall_timeout_s": _unread(f"no other rank waits for the only one; {_ALONE}"),
    "launch.progress_timeout_s": _unread(f"no other rank waits for the only one; {_ALONE}"),
    "launch.bind_cores": _unread(f"the process of the caller keeps its cores; {_ALONE}", False),
    "launch.max_restarts": _unread(f"the process of the caller isn't restarted; {_ALONE}", 0),
}
_BY_A_SCHEDULER: Declaration = {
    "launch.port": _unread("the job chooses its port; MASTER_PORT in the job's environment sets another"),
}
_FINETUNE: Declaration = {
    **{name: reading for name, reading in _TRAIN.items() if not name.startswith("data")},
    "squad": READ,
    "squad.warmup_fraction": ReadWhere(lambda s: s.schedule.warmup_steps == 0, "schedule.warmup_steps 0"),
    "scale_from_batch": _unread("set optimizer.learning_rate"),
    "scale_rule": _unread("set optimizer.learning_rate"),
    "hardware.division": _unread("MLPerf's divisions are for pre-training", "open"),
    "launch.clear_caches": _unread("fine-tuning clears no page cache", False),
    "launch.walltime_minutes": NO_EFFECT,
    "launch.max_restarts": _unread("fine-tuning doesn't restart", 0),
    "model.initial_weights": _unread("fine-tuning starts from --weights, or from random weights", "random"),
    "data": _unread("--train and --dev name the questions"),
    **dict.fromkeys(("data.global_batch_size", "data.local_batch", "data.gradient_accumulation_steps"), READ),
    "loss": _unread("fine-tuning takes the mean over the global batch", "global"),
    "schedule.max_steps": _unread("squad.epochs gives the number of steps"),
    "evaluation": _unread("fine-tuning answers all questions of --dev after each epoch"),
    "evaluation.batch_size": READ,
    "checkpoint": _unread("fine-tuning takes no snapshots; it writes the model at its end"),
    "checkpoint.every_steps": _unread("fine-tuning takes no snapshots", None),
    "checkpoint.final_weights": _unread("fine-tuning writes the model at its end", True),
    "precision.compute": ReadAs(("bf16", "fp16", "fp32"), "fine-tuning neither measures a format nor checks fp8"),
    "compute.compile": _unread("fine-tuning compiles nothing", None, "none", "auto"),
    "compute.products": _unread("fine-tuning multiplies by torch's own products", "torch"),
}
_EVALUATE: Declaration = {
    "*": NO_EFFECT,
    **dict.fromkeys(("launch.device", "launch.timeout_s", "model", "data.path", "data.eval_path"), READ),
    "data.recipe": READ,  # compared with the dataset's manifest
    "evaluation.batch_size": READ,
    "model.hidden_dropout": NO_EFFECT,
    "model.attention_dropout": NO_EFFECT,
    "model.initializer_range": NO_EFFECT,
    "model.initial_weights": NO_EFFECT,
    "precision.compute": ReadAs(
        ("bf16", "fp16", "fp32"), "measuring formats takes longer than an evaluation, and fp8's scales belong to a run"
    ),
    "precision.residual": _unread("an evaluation keeps hidden states in fp32", "auto", "fp32"),
    "compute.compile": _unread("compiling takes longer than one evaluation", None, "none", "auto"),
    "compute.products": _unread("an evaluation multiplies by torch's own products", "torch"),
}
_ABOUT_A_RUN: Declaration = {
    **dict.fromkeys(("name", "description", "source", "task", "hardware", "scale_from_batch", "scale_rule"), READ),
    **dict.fromkeys(("launch.ranks_per_node", "launch.device", "model"), READ),
    **dict.fromkeys(("data.global_batch_size", "data.local_batch", "data.gradient_accumulation_steps"), READ),
    # where and how a run starts doesn't change its time on the clock
    "launch": NO_EFFECT,
    "data.path": NO_EFFECT,
    "data.eval_path": NO_EFFECT,
    "data.recipe": NO_EFFECT,
    "checkpoint": NO_EFFECT,
    "squad": NO_EFFECT,
    "model.checkpoint": NO_EFFECT,
}
_OF_WHOLE_MODELS = "published runs hold whole models; `bertbench estimate --layouts` compares layouts"
_ESTIMATE: Declaration = {
    "*": _unread("the estimate doesn't depend on it; leave it out"),
    **_ABOUT_A_RUN,
    **dict.fromkeys(("optimizer.learning_rate", "optimizer.beta1", "optimizer.beta2"), READ),
    **dict.fromkeys(("schedule.max_steps", "schedule.warmup_steps", "schedule.start_warmup_step"), READ),
    "parallel": _unread(_OF_WHOLE_MODELS, 1, False),
    "parallel.schedule": NO_EFFECT,
}
_LAYOUTS: Declaration = {
    "*": _unread("the list of layouts doesn't depend on it; leave it out"),
    **_ABOUT_A_RUN,
    **dict.fromkeys(("precision", "optimizer.name", "optimizer.sharded"), READ),
    "parallel": _unread("it lists every layout; leave it out"),
    "data.balance": _unread("it counts the load of every layout as data.balance planned gives it", "planned"),
    "precision.compute": _unread("it counts products in 16 bits", "bf16", "fp16"),
    "communication.compression": ReadAs(("none", "fp16", "bf16"), "fewer than 16 bits count as 16"),
    "communication.bucket_mb": READ,
    "communication.buckets": READ,
}
_PREPARE: Declaration = {
    "*": NO_EFFECT,
    **dict.fromkeys(("data.path", "data.recipe", "model.max_positions"), READ),
}
# These commands describe a run, or check its machine: settings that they don't use can't change their answer.
_DESCRIBES: Declaration = {"*": NO_EFFECT}

DECLARATIONS: dict[str, Declaration] = {
    "train": _TRAIN,
    "train --smoke": {**_TRAIN, **_SHORT},
    "train --profile": {
        **_TRAIN, **_SHORT, "checkpoint.every_steps": _unread(f"it takes no snapshot; {_RESULT_ONLY}", None),
    },
    "run_training": {**_TRAIN, **_IN_PROCESS},
    "launch --on slurm": {**_TRAIN, **_BY_A_SCHEDULER},
    "finetune squad": _FINETUNE,
    "evaluate": _EVALUATE,
    "estimate": _ESTIMATE,
    "estimate --layouts": _LAYOUTS,
    "data prepare": _PREPARE,
    "plan": _DESCRIBES,
    "preflight": _DESCRIBES,
    "config show": _DESCRIBES,
}  # fmt: skip
"""The declarations by command; a mode that reads less is named with its option. run_training is a Python function."""
