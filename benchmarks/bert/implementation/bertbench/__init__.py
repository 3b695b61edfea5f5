"""An MLPerf-style BERT pre-training benchmark: load a system, plan a step, judge logs, read a run, train.

    import bertbench

    system = bertbench.load_system("cpu_demo", {"launch.ranks_per_node": 1})
    run = bertbench.run_training(system, seed=1)
    print(run.status, run.time_to_train_s, bertbench.judge_log(run.log).verdict)

docs/python.md is a notebook of all functions. Whatever a user can fix raises BertbenchError, with the text that the
commands print. A name is imported as it is used: `import bertbench` doesn't load torch.

docs/architecture.md has the map of the packages, which are internal: they may change between releases.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertbench.api.in_process import run_training
    from bertbench.api.judging import judge_folder, judge_log
    from bertbench.api.planning import RankPlan, StepAssignment, plan_rank, plan_step
    from bertbench.api.runs import read_run
    from bertbench.api.systems import load_system
    from bertbench.common.errors import BertbenchError
    from bertbench.config.system import System
    from bertbench.runs.run_summary import MeasuredAccuracy, RunSummary

__version__ = "0.2.0"
__all__ = [
    "BertbenchError",
    "MeasuredAccuracy",
    "RankPlan",
    "RunSummary",
    "StepAssignment",
    "System",
    "__version__",
    "judge_folder",
    "judge_log",
    "load_system",
    "plan_rank",
    "plan_step",
    "read_run",
    "run_training",
]
_HOMES = {
    "BertbenchError": "common.errors",
    "MeasuredAccuracy": "runs.run_summary",
    "RankPlan": "api.planning",
    "RunSummary": "runs.run_summary",
    "StepAssignment": "api.planning",
    "System": "config.system",
    "judge_folder": "api.judging",
    "judge_log": "api.judging",
    "load_system": "api.systems",
    "plan_rank": "api.planning",
    "plan_step": "api.planning",
    "read_run": "api.runs",
    "run_training": "api.in_process",
}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    """Import a public name as it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - what has no public name costs nothing

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
