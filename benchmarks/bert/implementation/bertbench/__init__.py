"""An MLPerf-style BERT pre-training benchmark: load a system, plan a step, judge logs, read a run, train.

    import bertbench

    system = bertbench.load_system("cpu_demo", {"launch.ranks_per_node": 1})
    run = bertbench.run_training(system, seed=1)
    print(run.status, run.time_to_train_s, bertbench.judge_logs(run.log)[0].verdict)

docs/ideas.md has examples. The functions are those that the commands call, but whatever a user can fix raises
BertbenchError here, with the text that the commands print. A name is imported as it is used: `import bertbench` doesn't
load torch.

docs/architecture.md has the map of the packages, which are internal: they may change between releases.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertbench.common.errors import BertbenchError
    from bertbench.config.load import load_system
    from bertbench.config.system import System
    from bertbench.plan.dry_run import DryRun, dry_run
    from bertbench.plan.planned_steps import StepAssignment, plan_step
    from bertbench.runs.run_summary import MeasuredAccuracy, RunSummary, read_summary
    from bertbench.training.in_process import run_training
    from compliance import judge_logs

__version__ = "0.2.0"
__all__ = [
    "BertbenchError",
    "DryRun",
    "MeasuredAccuracy",
    "RunSummary",
    "StepAssignment",
    "System",
    "__version__",
    "dry_run",
    "judge_logs",
    "load_system",
    "plan_step",
    "read_summary",
    "run_training",
]
_HOMES = {
    "BertbenchError": "bertbench.common.errors",
    "DryRun": "bertbench.plan.dry_run",
    "MeasuredAccuracy": "bertbench.runs.run_summary",
    "RunSummary": "bertbench.runs.run_summary",
    "StepAssignment": "bertbench.plan.planned_steps",
    "System": "bertbench.config.system",
    "dry_run": "bertbench.plan.dry_run",
    "judge_logs": "compliance",
    "load_system": "bertbench.config.load",
    "plan_step": "bertbench.plan.planned_steps",
    "read_summary": "bertbench.runs.run_summary",
    "run_training": "bertbench.training.in_process",
}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    """Import a public name as it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - what has no public name costs nothing
    from inspect import isfunction  # noqa: PLC0415 - as above

    from bertbench.common.user_errors import user_errors  # noqa: PLC0415 - as above

    value = getattr(import_module(_HOMES[name]), name)
    if isfunction(value):
        value = user_errors()(value)  # the judge, and libraries, raise other errors too
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
