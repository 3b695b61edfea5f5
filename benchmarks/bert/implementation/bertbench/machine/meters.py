"""Read the power meters of a node: RAPL of its processors, NVML of its GPUs, IPMI of the whole machine.

RAPL and GPUs count energy, so a reading is the true mean since the last one; IPMI reports the momentary power.
"""

import math
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pynvml

from bertbench.common.errors import system_reason
from bertbench.machine.processor import nvidia_gpus

IPMI = "ipmi"
_POWERCAP = "sys/class/powercap"
# Zones that don't overlap: a package includes its cores; psys includes the packages; -mmio repeats them.
_PACKAGE, _MEMORY = re.compile(r"intel-rapl:\d+"), re.compile(r"intel-rapl:\d+:\d+")
_READING = re.compile(r"Instantaneous power reading:\s+(\d+) Watts")
_IPMI_COMMAND = ("dcmi", "power", "reading")
_IPMI_LIMIT_S = 5


class Meter(NamedTuple):
    """A meter of a part of a node, or of all of it."""

    name: str
    watts: Callable[[], dict[str, float]]
    """Returns the power of each part: of the moment, or the mean since the last call, and then nothing at first.

    Raises OSError if the meter can't be read any more.
    """


class Found(NamedTuple):
    """The meters of a node, and why others are missing, a line each."""

    meters: list[Meter]
    absent: list[str]


def find(root: Path = Path("/")) -> Found:
    """Return the readable meters; `root` is the root of the file system."""
    found = Found([], [])
    for meter in (partial(_rapl, root / _POWERCAP), _gpus, _ipmi):
        try:
            found.meters.append(meter())
        except OSError as error:
            found.absent.append(str(error))
    return found


def _counter(name: str, joules: Callable[[], dict[str, float]], largest: Mapping[str, float]) -> Meter:
    """Return the meter that counters of energy give; `largest` says where a part's counter wraps around."""
    before: dict[str, float] = {}
    then = 0.0

    def watts() -> dict[str, float]:
        nonlocal before, then
        now, counts = time.monotonic(), joules()
        gained = {part: (counts[part] - count) % largest.get(part, math.inf) for part, count in before.items()}
        before, then, passed = counts, now, now - then
        return {part: energy / passed for part, energy in gained.items()}

    return Meter(name, watts)


def _rapl(folder: Path) -> Meter:
    zones: dict[str, Path] = {}

    def joules(file: str = "energy_uj") -> dict[str, float]:
        return {part: int((zone / file).read_text()) / 1e6 for part, zone in zones.items()}

    try:
        for zone in sorted(folder.glob("intel-rapl:*")):
            name = (zone / "name").read_text().strip()
            if _PACKAGE.fullmatch(zone.name) and name.startswith("package"):
                zones[name] = zone
            elif _MEMORY.fullmatch(zone.name) and name == "dram":
                zones[f"{name}-{zone.name.split(':')[1]}"] = zone
        joules()
        meter = _counter("rapl", joules, joules("max_energy_range_uj"))
    except OSError as error:
        raise OSError(
            f"RAPL: {error.filename} can't be read ({system_reason(error)}); only root may, unless `chmod a+r` lets "
            "others"
        ) from error
    if not zones:
        raise OSError(f"RAPL: no intel-rapl package in {folder}")
    return meter


def _gpus() -> Meter:
    gpus = nvidia_gpus()

    def joules() -> dict[str, float]:
        try:
            return {
                f"gpu-{index}": pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3 for index, gpu in enumerate(gpus)
            }
        except pynvml.NVMLError as error:  # before Volta, GPUs count no energy
            raise OSError(f"NVML: {error}") from error

    if not joules():
        raise OSError("NVML: found no GPU")
    return _counter("nvml", joules, {})


def _ipmi() -> Meter:
    tool = shutil.which("ipmitool")
    if tool is None:
        raise OSError("IPMI: no ipmitool is installed")

    def read() -> dict[str, float]:
        try:
            done = subprocess.run(
                [tool, *_IPMI_COMMAND], capture_output=True, text=True, check=False, timeout=_IPMI_LIMIT_S
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(f"IPMI: ipmitool gave no answer within {_IPMI_LIMIT_S} s") from error
        answer = _READING.search(done.stdout)
        if answer is None:
            said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[0]
            raise OSError(f"IPMI: `ipmitool {' '.join(_IPMI_COMMAND)}` gives no reading ({said})")
        return {"node": float(answer[1])}

    read()
    return Meter(IPMI, read)
