"""Read the power meters of a node: RAPL for its processors, NVML for its GPUs, IPMI for the whole machine.

RAPL and GPUs count energy, so a reading is the true mean power since the previous one. IPMI reports the momentary
power. A meter may report nonsense: a service processor that has no reading answers 0 W or 65,535 W, and the counter of
a virtual machine doesn't move. A value that no running node can draw doesn't count as a reading.
"""

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
from bertbench.machine.gpus import nvidia_gpus

IPMI = "ipmi"
_POWERCAP = "sys/class/powercap"
# Zones that don't overlap: a package includes its cores; psys includes the packages; -mmio repeats them.
_PACKAGE, _MEMORY = re.compile(r"intel-rapl:\d+"), re.compile(r"intel-rapl:\d+:\d+")
_READING = re.compile(r"Instantaneous power reading\s*:\s*(\S*)[ \t]*(\S*)")
_WATTS = {"watts": 1.0, "watt": 1.0, "w": 1.0, "milliwatts": 1e-3, "mw": 1e-3, "kilowatts": 1e3, "kw": 1e3}
_NO_READING = 0xFFFF  # all of DCMI's 16 bits set
_MOST_W = 150_000.0  # what a rack draws; the judge of power files has the same limit
_IPMI_COMMAND = ("dcmi", "power", "reading")
_IPMI_LIMIT_S = 5
_IPMI_ATTEMPTS = 3  # a busy service processor misses one now and then
IPMI_PAUSE_S = 0.5


class Meter(NamedTuple):
    """A meter of a part of a node, or of the whole node."""

    name: str
    watts: Callable[[], dict[str, float]]
    """Returns the power of each part in watts: the momentary power, or the mean since the last call.

    A meter that returns means returns nothing on its first call. Raises OSError if the meter has no reading now. A
    later call may succeed; its mean starts at the last call that succeeded.
    """


class _AbsentError(OSError):
    """The node has no such meter."""


class NodeMeters(NamedTuple):
    """The meters of a node, and a line about each meter that can't be used."""

    usable: list[Meter]
    absent: list[str]
    """Meters that the node doesn't have."""
    faulty: list[str]
    """Meters that the node has but that give no reading."""


def find_meters(root: Path = Path("/")) -> NodeMeters:
    """Return the meters that the node has and this user may read; `root` is the root of the file system."""
    meters = NodeMeters([], [], [])
    for open_meter in (partial(_rapl, root / _POWERCAP), _gpus, _ipmi):
        try:
            meters.usable.append(open_meter())
        except _AbsentError as error:
            meters.absent.append(str(error))
        except OSError as error:
            meters.faulty.append(str(error))
    return meters


def _counter(name: str, joules: Callable[[], dict[str, float]], largest: Mapping[str, float]) -> Meter:
    """Return a meter that reads energy counters; `largest` holds the value at which a part's counter wraps around."""
    before: dict[str, float] = {}
    then = 0.0

    def watts() -> dict[str, float]:
        nonlocal before, then
        now, counts = time.monotonic(), joules()
        gained = {part: counts[part] - count for part, count in before.items()}
        for part, energy in gained.items():
            if energy < 0:  # it wrapped around, or was reset
                gained[part] += largest.get(part, 0.0)
        passed = now - then
        if 0 not in gained.values():  # a counter that didn't move keeps its older starting point
            before, then = counts, now
        return {part: _sound(name, part, energy / passed) for part, energy in gained.items()}

    return Meter(name, watts)


def _sound(meter: str, part: str, watts: float) -> float:
    """Return the power if a running machine can draw that much. Raises OSError otherwise."""
    if 0 < watts <= _MOST_W:
        return watts
    raise OSError(f"{meter.upper()}: {part} reads {watts:g} W, expected more than 0 and at most {_MOST_W:,.0f} W")


def _rapl(folder: Path) -> Meter:
    zones: dict[str, Path] = {}

    def joules(file: str = "energy_uj") -> dict[str, float]:
        counts = {}
        for part, zone in zones.items():
            text = (zone / file).read_text().strip()
            if not text.isdecimal():
                raise OSError(f"RAPL: {zone / file} holds {text[:20]!r}, expected a number")
            counts[part] = int(text) / 1e6
        return counts

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
        if error.filename is None:
            raise
        raise OSError(
            f"RAPL: {error.filename} can't be read ({system_reason(error)}); only root may, unless `chmod a+r` lets "
            "others"
        ) from error
    if not zones:
        raise _AbsentError(f"RAPL: no intel-rapl package in {folder}")
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

    if not gpus:
        raise _AbsentError("NVML: found no GPU")
    joules()
    return _counter("nvml", joules, {})


def _ipmi() -> Meter:
    tool = shutil.which("ipmitool")
    if tool is None:
        raise _AbsentError("IPMI: no ipmitool is installed")

    def read() -> dict[str, float]:
        try:
            done = subprocess.run(
                [tool, *_IPMI_COMMAND], capture_output=True, text=True, errors="replace", check=False,
                timeout=_IPMI_LIMIT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise OSError(f"IPMI: ipmitool gave no answer within {_IPMI_LIMIT_S} s") from error
        answer = _READING.search(done.stdout)
        if answer is None:
            said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[0]
            raise OSError(f"IPMI: `ipmitool {' '.join(_IPMI_COMMAND)}` gives no reading ({said})")
        return {"node": _sound(IPMI, "node", _watts(answer[1], answer[2]))}

    for attempt in range(_IPMI_ATTEMPTS):
        try:
            read()
            break
        except OSError:
            if attempt + 1 == _IPMI_ATTEMPTS:
                raise
            time.sleep(IPMI_PAUSE_S)
    return Meter(IPMI, read)


def _watts(value: str, unit: str) -> float:
    """Return the power that IPMI states. Raises OSError if it states no power, or an unknown unit."""
    factor = _WATTS.get(unit.lower())
    if factor is None or not re.fullmatch(r"\d+(\.\d+)?", value) or float(value) == _NO_READING:
        raise OSError(f"IPMI: found a power reading of {f'{value} {unit}'.strip()!r}, expected watts")
    return factor * float(value)
