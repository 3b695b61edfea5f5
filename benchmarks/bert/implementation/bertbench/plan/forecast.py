"""Forecast a system file's run: time to the target, where the time goes, and the limiting part."""

from dataclasses import replace
from typing import NamedTuple

from bertbench.common.errors import ConfigError
from bertbench.config import System
from bertbench.model.shape import BertShape
from bertbench.plan.calibrate import calibration
from bertbench.plan.calibrating_results import Method, forecast_results
from bertbench.plan.convergence import Samples, samples_to_converge
from bertbench.plan.layout_time import step_seconds
from bertbench.plan.ranges import Range, range_of
from bertbench.plan.ranges import warnings as outside
from bertbench.plan.step_time import Gpu, Seconds, Work, gpu_of, gpu_of_card, run_seconds, sent_by

LIMITS = {
    "start_up": "start-up: the same on any number of GPUs",
    "compute": "the GPUs' own work: more GPUs still help",
    "imbalance": "load: GPUs wait for the one with the longest samples",
    "communication": "communication: gradients that no computation hides",
    "waiting": "waiting: ranks of many nodes wait for each other",
    "evaluation": "evaluation",
}
"""Explanation of each part of `Seconds` as the largest."""


class Forecast(NamedTuple):
    """The forecast for one run of a system."""

    system: System
    gpu: Gpu
    samples: Samples
    seconds: Seconds
    card: str | None = None
    """The card that was asked for instead of the system's own, such as h100-pcie."""

    @property
    def minutes(self) -> float:
        """Return the time to train."""
        return self.seconds.total / 60

    @property
    def range(self) -> Range:
        """Return the range of the time to train."""
        return range_of(self.system, self.gpu, self.minutes, self.card)

    @property
    def warnings(self) -> list[str]:
        """Return how the system differs from the runs that calibrated forecasts."""
        found = list(outside(self.system, self.gpu, self.card))
        if self.system.optimizer.name != "lamb" and self.samples.interpolated:
            found.append(
                f"optimizer.name {self.system.optimizer.name}: no published result has these hyper-parameters; the "
                "samples to converge are LAMB's"
            )
        return found


def trains_bert_large(system: System) -> bool:
    """Return whether a system trains BERT-Large on GPUs: nothing else is calibrated."""
    return system.launch.device == "cuda" and system.model.shape() == BertShape()


def forecast(system: System, card: str | None = None) -> Forecast:
    """Forecast a system, on its own GPUs or on those of another card: one of `gpu_models`, or a kind such as h100.

    Raises ConfigError if it doesn't train BERT-Large on GPUs of a known kind.
    """
    if not trains_bert_large(system):
        raise ConfigError(
            f"{system.name}: doesn't train BERT-Large on GPUs, and forecasts are calibrated on nothing else; choose a "
            "dgx system (`bertbench config list` lists them)"
        )
    kind = gpu_of_card(card) if card else gpu_of(system)
    options, schedule = system.optimizer, system.schedule
    samples = samples_to_converge(
        system.global_batch_size,
        (
            options.learning_rate, options.beta1, options.beta2,
            schedule.max_steps, schedule.warmup_steps, schedule.start_warmup_step,
        ),
        forecast_results(),
    )  # fmt: skip
    batching: str = system.data.balance
    if system.data.equal_counts and "planned" in batching:
        batching += "_equal_counts"
    method = Method(batching, overlap=system.clip.mode != "before")
    work = Work(
        kind,
        system.world_size,
        system.hardware.number_of_nodes,
        system.global_batch_size,
        samples.number,
        method,
        sent_by(system),
    )
    seconds = run_seconds(work, calibration(kind))
    if system.parallel.splits:  # a layout's steps; evaluations count as without one
        step, steps = step_seconds(system, kind), samples.number / system.global_batch_size
        seconds = replace(
            seconds,
            compute=steps * step.compute,
            imbalance=steps * (step.imbalance + step.bubble),
            communication=steps * (step.tensor + step.pipeline + step.data),
            waiting=steps * step.waiting,
        )
    return Forecast(system, kind, samples, seconds, card)
