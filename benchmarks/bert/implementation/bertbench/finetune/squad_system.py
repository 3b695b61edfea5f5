"""Load a system for fine-tuning: its file has the recipe, as for pre-training, and the questions give the steps."""

from collections.abc import Iterable

from bertbench.common.errors import ConfigError
from bertbench.common.reads import Choice, Reads, Unread
from bertbench.config import System, load_system
from bertbench.config.given import check_given
from bertbench.config.load import problems
from bertbench.config.sections import Checkpoint, Compute, Evaluation, Loss
from bertbench.model.options import unmeasured_precision

FINETUNE_SQUAD = Reads(
    "finetune squad",
    task="squad",
    trains=True,
    sections=(
        "name", "description", "source", "task",
        "hardware", "launch", "model", "optimizer", "schedule", "clip", "communication", "precision", "compute",
        "squad", "parallel",
        "data.global_batch_size", "data.local_batch", "data.gradient_accumulation_steps",
        "evaluation.batch_size",
    ),
    exceptions={
        "scale_from_batch": Unread("set optimizer.learning_rate"),
        "scale_rule": Unread("set optimizer.learning_rate"),
        "hardware.division": Unread("MLPerf's divisions are for pre-training", accepted=("open",)),
        "launch.clear_caches": Unread("fine-tuning clears no page cache", accepted=(False,)),
        "launch.max_restarts": Unread("fine-tuning doesn't restart", accepted=(0,)),
        "model.initial_weights": Unread(
            "fine-tuning starts from --weights, or from random weights", accepted=("random",)
        ),
        "data": Unread("--train and --dev name the questions"),
        "loss": Unread("fine-tuning takes the mean over the global batch", accepted=("global",)),
        "schedule.max_steps": Unread("squad.epochs gives the number of steps"),
        "evaluation": Unread("fine-tuning answers all questions of --dev after each epoch"),
        "checkpoint": Unread("fine-tuning takes no snapshots; it writes the model at its end"),
        "checkpoint.every_steps": Unread("fine-tuning takes no snapshots", accepted=(None,)),
        "checkpoint.final_weights": Unread("fine-tuning writes the model at its end", accepted=(True,)),
        "precision.compute": Choice(
            ("bf16", "fp16", "fp32"), "fine-tuning neither measures a format nor checks fp8"
        ),
        "compute.compile": Unread("fine-tuning compiles nothing", accepted=(None, "none", "auto")),
        "compute.products": Unread("fine-tuning multiplies by torch's own products", accepted=("torch",)),
    },
    others=Unread("fine-tuning doesn't use it; leave it out"),
)  # fmt: skip


def load_finetuning(name_or_path: str, overrides: Iterable[str] = ()) -> System:
    """Return the system that fine-tuning trains with; `with_steps` completes its `schedule` when the steps are known.

    Raises ConfigError as `load_system` does, for another task, and for settings that fine-tuning can't honour.
    """
    system = load_system(name_or_path, overrides)
    check_given(system, FINETUNE_SQUAD)
    return as_fine_tuned(system)


def as_fine_tuned(system: System) -> System:
    """Return the system without what fine-tuning neither measures nor checks, and with defaults for what it ignores."""
    precision = system.precision
    changed: dict[str, object] = {
        "precision": precision.model_copy(update={"compute": unmeasured_precision(precision.compute)}),
        "compute": Compute(compile="none", products="torch"),
        "launch": system.launch.model_copy(update={"clear_caches": False, "max_restarts": 0}),
        "loss": Loss(),
        "evaluation": Evaluation(batch_size=system.evaluation.batch_size),
        "checkpoint": Checkpoint(),
    }
    if system.optimizer.impl == "auto":
        changed["optimizer"] = system.optimizer.model_copy(update={"impl": "torch"})
    return system.model_copy(update=changed)


def with_steps(system: System, steps: int) -> System:
    """Return the system with a schedule of `steps` steps. Raises ConfigError if the schedule doesn't fit them."""
    warm_up_steps = system.schedule.warmup_steps or int(system.squad.warmup_fraction * steps)
    schedule = system.schedule.model_copy(update={"max_steps": steps, "warmup_steps": warm_up_steps})
    scheduled = system.model_copy(update={"schedule": schedule})
    if unfit := list(problems(scheduled)):
        raise ConfigError("\n".join(f"{system.argument}: {problem}" for problem in unfit))
    return scheduled
