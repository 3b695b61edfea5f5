"""Forecast a system file's run: time to the target, where the time goes, and the limiting part."""

from dataclasses import replace
from typing import NamedTuple

from bertbench.common.errors import ConfigError
from bertbench.config import System
from bertbench.model.shape import BertShape
from bertbench.plan.calibrate import calibration
from bertbench.plan.calibrating_results import Method, forecast_results
from bertbench.plan.convergence import Samples, samples_to_converge
from bertbench.plan.forecast_errors import TimeRange, calibration_warnings, range_of
from bertbench.plan.layout_time import step_seconds
from bertbench.plan.step_time import Gpu, RunSeconds, Workload, gpu_of, gpu_of_card, gradient_traffic, run_seconds

LIMITS = {
    "start_up": "start-up: the same on any number of GPUs",
    "compute": "compute: more GPUs still help",
    "imbalance": "load imbalance: GPUs wait for the one with the most work",
    "communication": "communication: gradient exchange that isn't hidden by computation",
    "waiting": "waiting: ranks on many nodes wait for each other",
    "evaluation": "evaluation",
}
"""What each part of `RunSeconds` means for the run if it is the largest."""


class RunForecast(NamedTuple):
    """The forecast for one run of a system."""

    system: System
    gpu: Gpu
    samples: Samples
    seconds: RunSeconds
    card: str | None = None
    """The card that the user named instead of the system's own, such as h100-pcie."""

    @property
    def minutes(self) -> float:
        """Return the time to train."""
        return self.seconds.total / 60

    @property
    def range(self) -> TimeRange:
        """Return the range of the time to train."""
        return range_of(self.system, self.gpu, self.minutes, self.card)

    @property
    def warnings(self) -> list[str]:
        """Return how the system differs from the runs by which forecasts were calibrated."""
        warnings = list(calibration_warnings(self.system, self.gpu, self.card))
        if self.system.optimizer.name != "lamb" and self.samples.interpolated:
            warnings.append(
                f"optimizer.name {self.system.optimizer.name}: no published result has these hyper-parameters, so the "
                "samples to converge are those of LAMB"
            )
        return warnings


def trains_bert_large(system: System) -> bool:
    """Return whether a system trains BERT-Large on GPUs; forecasts are calibrated for nothing else."""
    return system.launch.device == "cuda" and system.model.shape() == BertShape()


def forecast_run(system: System, card: str | None = None) -> RunForecast:
    """Forecast a system on its own GPUs or on another `card`: one of `gpu_models`, or a kind such as h100.

    Raises ConfigError if it doesn't train BERT-Large on GPUs of a known kind.
    """
    if not trains_bert_large(system):
        raise ConfigError(
            f"{system.name}: doesn't train BERT-Large on GPUs; forecasts are calibrated for nothing else; choose a "
            "dgx system (`bertbench config list` lists them)"
        )
    kind = gpu_of_card(card) if card else gpu_of(system)
    samples = samples_to_converge(system.global_batch_size, _hyper_parameters(system), forecast_results())
    work = Workload(
        gpu=kind,
        gpus=system.world_size,
        nodes=system.hardware.number_of_nodes,
        global_batch_size=system.global_batch_size,
        samples=samples.number,
        method=_method(system),
        traffic=gradient_traffic(system),
    )
    seconds = run_seconds(work, calibration(kind))
    if system.parallel.splits:
        seconds = _with_steps_of_layout(seconds, system, kind, samples.number)
    return RunForecast(system, kind, samples, seconds, card)


def _hyper_parameters(system: System) -> tuple[float, ...]:
    """Return the hyper-parameters by which published results are compared, in their order (published_results.py)."""
    optimizer, schedule = system.optimizer, system.schedule
    return (
        optimizer.learning_rate,
        optimizer.beta1,
        optimizer.beta2,
        schedule.max_steps,
        schedule.warmup_steps,
        schedule.start_warmup_step,
    )


def _method(system: System) -> Method:
    """Return how a system assigns samples, reduces gradients and launches steps.

    The load of a split model counts as that of `planned`, as in its steps (layout_time.py).
    """
    return Method(
        batching="planned" if system.parallel.splits else system.balance,
        overlap=system.clip.mode != "before",
        graphs=system.compute.compile == "graphs",
    )


def _with_steps_of_layout(seconds: RunSeconds, system: System, gpu: Gpu, samples: float) -> RunSeconds:
    """Return a run's seconds with the steps of a split model; evaluations count as if it weren't split."""
    step = step_seconds(system, gpu)
    steps = samples / system.global_batch_size
    return replace(
        seconds,
        compute=steps * step.compute,
        imbalance=steps * (step.imbalance + step.stage_wait),
        communication=steps * (step.tensor + step.pipeline + step.data),
        waiting=steps * step.waiting,
    )
