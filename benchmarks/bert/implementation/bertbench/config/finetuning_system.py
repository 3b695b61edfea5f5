"""Load a system for fine-tuning: its file has the recipe, as for pre-training, and the questions give the steps."""

from collections.abc import Iterable

from bertbench.common.errors import ConfigError
from bertbench.config.checks import problems
from bertbench.config.load import load_system
from bertbench.config.sections import Checkpoint, Compute, Evaluation, Loss
from bertbench.config.system import System
from bertbench.config.unread import check_given
from bertbench.model.options import unmeasured_precision


def load_finetuning(name_or_path: str, overrides: Iterable[str] = ()) -> System:
    """Return the system that fine-tuning trains with; `with_steps` completes its `schedule` when the steps are known.

    Raises ConfigError as `load_system` does, for another task, and for settings that fine-tuning can't honour.
    """
    system = load_system(name_or_path, overrides)
    check_given(system, "finetune squad")
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
