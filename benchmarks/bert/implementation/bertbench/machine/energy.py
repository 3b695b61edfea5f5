"""Measure the energy of a timed run by its nodes' own counters: NVML's of GPUs, RAPL's of processors and memory.

The counters are read when the clock starts and when it stops. They count a whole node, with everything else that runs
there, but no fans, network or losses of the power supply. Power over time isn't recorded, and a node whose counters
can't be read has no energy: that is never an error.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pynvml

from bertbench.distributed.world import World
from bertbench.machine.gpus import ask_driver, nvidia_gpus

_POWERCAP = Path("/sys/class/powercap")
# Zones that don't overlap: a package includes its cores; psys includes the packages; -mmio repeats them.
_PACKAGE, _MEMORY = re.compile(r"intel-rapl:\d+"), re.compile(r"intel-rapl:\d+:\d+")
_LOOK_S = 30.0  # RAPL's smallest counters wrap at 65 kJ: at 1,000 W after 65 s
_UNREADABLE = (OSError, ValueError)


class _Counter:
    """Adds up the energy that a counter has gained since it was opened, in joules.

    `wraps_at_j` is the value after which it starts again from 0; 0 for a counter that doesn't.
    """

    def __init__(self, read_j: Callable[[], float], wraps_at_j: float) -> None:
        self._read_j = read_j
        self._wraps_at_j = wraps_at_j
        self._last_j = read_j()
        self.gained_j = 0.0

    def look(self) -> None:
        """Add what the counter has gained since the last look. Raises ValueError if the counter was reset."""
        now_j = self._read_j()
        gained_j = now_j - self._last_j
        if gained_j < 0:
            gained_j += self._wraps_at_j
        if gained_j < 0:
            raise ValueError(f"the counter went from {self._last_j} J back to {now_j} J")
        self._last_j = now_j
        self.gained_j += gained_j


class RunEnergy:
    """The energy of a run. The rank of each node that `reads` its counters knows the node's energy.

    `powercap` is the kernel's folder of RAPL. A daemon thread looks at the counters now and then, because a counter
    that wraps twice between two looks loses energy.
    """

    def __init__(self, reads: bool, powercap: Path = _POWERCAP) -> None:
        self._reads = reads
        self._powercap = powercap
        self._counters: dict[str, list[_Counter]] = {}
        self._stopped = Event()
        self._looking = Thread(target=self._look_now_and_then, daemon=True)

    def start(self) -> None:
        """Open the counters: the energy is counted from now on."""
        if self._reads:
            self._counters = _open_counters(self._powercap)
            self._looking.start()

    def stop(self) -> None:
        """Read the counters for the last time."""
        self._stopped.set()
        if self._reads:
            self._looking.join()
            self._look()

    def joules(self) -> dict[str, float]:
        """Return this node's joules by kind of counter. Counters of virtual machines that never move don't count."""
        joules = {}
        for kind, counters in self._counters.items():
            if all(counter.gained_j > 0 for counter in counters):
                joules[kind] = sum(counter.gained_j for counter in counters)
        return joules

    def gathered(self, world: World) -> dict[str, float]:
        """Return the joules of all nodes by kind of counter, without the kinds that some node doesn't have.

        All ranks must call it, off the clock.
        """
        from_all = world.from_all(self.joules() if self._reads else None)
        nodes = [joules for joules in from_all if joules is not None]
        kinds = [kind for kind in nodes[0] if all(kind in joules for joules in nodes)]
        return {kind: round(sum(joules[kind] for joules in nodes), 3) for kind in kinds}

    def _look_now_and_then(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        for kind, counters in [*self._counters.items()]:
            try:
                for counter in counters:
                    counter.look()
            except _UNREADABLE:
                del self._counters[kind]


def _open_counters(powercap: Path) -> dict[str, list[_Counter]]:
    """Return the counters of this node that can be read, by kind."""
    counters = {}
    for kind, opened in (("nvml", _gpus), ("rapl", partial(_processors_and_memory, powercap))):
        try:
            found = opened()
        except _UNREADABLE:
            continue
        if found:
            counters[kind] = found
    return counters


def _gpus() -> list[_Counter]:
    """Return a counter for each GPU. Raises ValueError for GPUs before Volta, which count no energy."""
    return [_Counter(partial(_gpu_joules, gpu), wraps_at_j=0.0) for gpu in nvidia_gpus()]


def _gpu_joules(gpu: object) -> float:
    millijoules: int | None = ask_driver(pynvml.nvmlDeviceGetTotalEnergyConsumption, gpu)
    if millijoules is None:
        raise ValueError("this GPU counts no energy")
    return millijoules / 1e3


def _processors_and_memory(powercap: Path) -> list[_Counter]:
    """Return RAPL's counters of packages and memory. Raises OSError if this user may not read them; root may."""
    counters = []
    for zone in sorted(powercap.glob("intel-rapl:*")):
        name = (zone / "name").read_text().strip()
        is_package = _PACKAGE.fullmatch(zone.name) and name.startswith("package")
        is_memory = _MEMORY.fullmatch(zone.name) and name == "dram"
        if is_package or is_memory:
            wraps_at_j = _joules_in(zone / "max_energy_range_uj")
            counters.append(_Counter(partial(_joules_in, zone / "energy_uj"), wraps_at_j))
    return counters


def _joules_in(file: Path) -> float:
    """Return the joules of a file that holds microjoules."""
    return int(file.read_text()) / 1e6
