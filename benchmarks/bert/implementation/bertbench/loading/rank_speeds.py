"""Measure ranks' speeds during warm-up and the run; `planned` assigns each rank work in proportion to its speed.

Steps wait for the slowest rank. If all ranks have equal work, one rank at half speed doubles the time of every step.
"""

import sys
import time
from collections.abc import Callable, Iterator

import torch

from bertbench.balance.speeds import Speeds
from bertbench.common.phase_clock import PhaseClock
from bertbench.common.phases import OWN, PHASES
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.loader import STEPS_AHEAD, LoadedStep, Loader

# a processor quota lets a rank run at full speed at the start of each 0.1 s; a measurement of 2 s is off by at most
# half of that, 2.5 %
_BURST_S, _RATE_S = 0.2, 2.0


def at_measured_speeds(
    loader: Loader, system: System, world: World, speeds: Speeds, passes_per_s: float, clock: PhaseClock
) -> "Loader | RebalancingLoader":
    """Return the loader for ranks that work at `speeds`; `auto` sets these to those measured in warm-up. Collective.

    `clock` measures them again during the run, if the system asks for it.
    """
    if system.launch.rank_speeds == "auto":
        speeds.change(0, tuple(world.from_all(passes_per_s)))
        if world.leads:
            print(f"rank speeds: {speeds.text()}", file=sys.stderr)
    every = system.launch.rebalance_every_steps
    return RebalancingLoader(loader, every, speeds, world, clock) if every else loader


def passes_per_s(take_pass: Callable[[], None], world: World) -> float:
    """Return this rank's forward and backward passes per second, while all ranks run theirs for two seconds."""
    world.barrier()
    _rate(take_pass, world, _BURST_S)
    return _rate(take_pass, world, _RATE_S)


def _rate(take_pass: Callable[[], None], world: World, seconds: float) -> float:
    passes = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        take_pass()
        if world.device.type == "cuda":
            torch.cuda.synchronize(world.device)
        passes += 1
    return passes / (time.perf_counter() - began)


class RebalancingLoader:
    """Measure the ranks' speeds every `every` steps with `clock`, and change `speeds` from the first unplanned step on.

    Every rank must take the same steps. All of a rank's own time counts, including work that doesn't depend on its
    share, such as the update. So the ranks' times converge per step, not per sample.
    """

    def __init__(self, loader: Loader, every: int, speeds: Speeds, world: World, clock: PhaseClock) -> None:
        self._loader = loader
        self._every = every
        self._speeds = speeds
        self._world = world
        self._clock = clock
        self._begin()

    def steps(self, steps: range) -> Iterator[LoadedStep]:
        """Yield each of `steps` in order, as `Loader.steps` does."""
        self._begin()
        for steps_taken, loaded in enumerate(self._loader.steps(steps), start=steps.start + 1):
            yield loaded
            self._load += loaded.load  # the caller asks for the next step, so it has taken this one
            if steps_taken % self._every == 0:
                self._measure(steps_taken)

    def _measure(self, steps_taken: int) -> None:
        """Change the speeds according to each rank's work since the last measurement. Collective."""
        rates = self._world.from_all(self._load / (self._worked_ms() - self._begun_ms))
        shares = self._speeds.at(steps_taken)
        total = sum(rates)
        # change them halfway, by ratio: a rank under a quota looks fast until it has used the quota up, and then slow
        mixed = tuple(float((share * rate / total) ** 0.5) for share, rate in zip(shares, rates, strict=True))
        self._speeds.change(steps_taken + STEPS_AHEAD, mixed)
        self._begin()

    def _begin(self) -> None:
        """Begin a measurement."""
        self._begun_ms = self._worked_ms()
        self._load = 0.0

    def _worked_ms(self) -> float:
        by_phase = dict(zip(PHASES, self._clock.total_ms(), strict=True))
        return sum(by_phase[phase] for phase in OWN)
