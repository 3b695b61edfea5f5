"""Read the power meters of a node: RAPL of its processors, NVML of its GPUs, IPMI of the whole machine.

RAPL and most GPUs count energy, so a reading is the true mean since the last one; IPMI reports the momentary power.
"""

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pynvml

from bertbench.common.errors import system_reason

IPMI = "ipmi"
_POWERCAP = "sys/class/powercap"
# Zones that don't overlap: a package includes its cores; psys includes the packages; -mmio repeats them.
_PACKAGE, _MEMORY = re.compile(r"intel-rapl:\d+"), re.compile(r"intel-rapl:\d+:\d+")
_READING = re.compile(r"Instantaneous power reading:\s+(\d+) Watts")
_IPMI_COMMAND = ("dcmi", "power", "reading")
_IPMI_LIMIT_S = 5


class Meter(Protocol):
    """A meter of a part of a node, or of all of it."""

    name: str

    def watts(self) -> dict[str, float]:
        """Return the power of each part, momentary or the mean since the last call; counters have none at first.

        Raises OSError if the meter can't be read any more.
        """


class Found(NamedTuple):
    """The meters of a node, and why others are missing, a line each."""

    meters: list[Meter]
    absent: list[str]


def find(root: Path = Path("/"), nvml: Any = pynvml) -> Found:
    """Return the readable meters; `root` is the root of the file system, `nvml` NVIDIA's management library."""
    meters: list[Meter] = []
    absent = []
    for kind in (lambda: _rapl(root / _POWERCAP), lambda: _gpus(nvml), _ipmi):
        found = kind()
        if isinstance(found, str):
            absent.append(found)
        else:
            meters.append(found)
    return Found(meters, absent)


class _Counters:
    """Counters of energy: each part's in joules, and where it wraps around (None: never)."""

    def __init__(self, name: str, parts: dict[str, tuple[Callable[[], float], float | None]]) -> None:
        self.name = name
        self._parts = parts
        self._before: dict[str, float] = {}
        self._then = 0.0

    def watts(self) -> dict[str, float]:
        now, counts = time.monotonic(), {part: read() for part, (read, _) in self._parts.items()}
        before, passed = self._before, now - self._then
        self._before, self._then = counts, now
        if not before or not passed:
            return {}
        gained = {}
        for part, (_, largest) in self._parts.items():
            joules = counts[part] - before[part]
            gained[part] = joules % largest if largest else joules
        return {part: joules / passed for part, joules in gained.items()}


class _Gauges:
    """Gauges of the momentary power, in watts."""

    def __init__(self, name: str, read: Callable[[], dict[str, float]]) -> None:
        self.name = name
        self.watts = read


def _rapl(folder: Path) -> Meter | str:
    parts: dict[str, tuple[Callable[[], float], float | None]] = {}
    for zone in sorted(folder.glob("intel-rapl:*")):
        try:
            name = (zone / "name").read_text().strip()
            counts = _PACKAGE.fullmatch(zone.name) and name.startswith("package")
            if counts or (_MEMORY.fullmatch(zone.name) and name == "dram"):
                label = name if counts else f"{name}-{zone.name.split(':')[1]}"
                largest = _microjoules(zone / "max_energy_range_uj")
                _microjoules(zone / "energy_uj")  # raises if it can't be read
                parts[label] = partial(_microjoules, zone / "energy_uj"), largest
        except (OSError, ValueError) as error:
            reason = system_reason(error) if isinstance(error, OSError) else "holds no number"
            return f"RAPL: {zone}/energy_uj can't be read ({reason}); only root may, unless `chmod a+r` lets others"
    return _Counters("rapl", parts) if parts else f"RAPL: no intel-rapl package in {folder}"


def _microjoules(file: Path) -> float:
    return int(file.read_text()) / 1e6


def _gpus(nvml: Any) -> Meter | str:
    try:
        nvml.nvmlInit()
        gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        return f"NVML: {error}"
    if not gpus:
        return "NVML: the driver sees no GPU"

    def joules(gpu: Any) -> float:
        try:
            return nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3
        except nvml.NVMLError as error:
            raise OSError(f"NVML: {error}") from error

    def of_the_moment() -> dict[str, float]:
        try:
            return {f"gpu-{index}": nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3 for index, gpu in enumerate(gpus)}
        except nvml.NVMLError as error:
            raise OSError(f"NVML: {error}") from error

    try:
        for gpu in gpus:
            joules(gpu)
    except OSError:  # before Volta
        try:
            of_the_moment()
        except OSError as error:
            return str(error)
        return _Gauges("nvml", of_the_moment)
    return _Counters("nvml", {f"gpu-{index}": (partial(joules, gpu), None) for index, gpu in enumerate(gpus)})


def _ipmi() -> Meter | str:
    tool = shutil.which("ipmitool")
    if tool is None:
        return "IPMI: no ipmitool is installed"

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

    try:
        read()
    except OSError as error:
        return str(error)
    return _Gauges(IPMI, read)
