"""Power meters, on files like the kernel's, a library like NVIDIA's and a program like ipmitool."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertbench.machine import describe, meters, provenance
from bertbench.machine import gpus as machine_gpus
from bertbench.machine.meters import Meter, find_meters
from tests.conftest import Program

RANGE_UJ = 262_143_328_850


class Gpus:
    """NVIDIA's library, with a GPU for each counter, in millijoules, and no other functions."""

    NVML_NVLINK_MAX_LINKS, NVML_CLOCK_SM = 18, 1
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.millijoules: list[int] = []

    def nvmlInit(self) -> None:  # noqa: N802 - the library's name
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.millijoules)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: int) -> int:  # noqa: N802
        return self.millijoules[gpu]

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: Any) -> None:
            raise self.NVMLError("GPU is lost")

        if name.startswith("nvmlClocks"):
            return 0
        return refuse


@pytest.fixture(autouse=True)
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """A library in place of NVIDIA's, at first without GPUs."""
    library = Gpus()
    for module in (meters, describe, machine_gpus, provenance):
        monkeypatch.setattr(module, "pynvml", library)
    return library


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The clock of the meters: its only element."""
    now = [100.0]
    monkeypatch.setattr(meters.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("PATH", "/nowhere")  # no ipmitool
    return iter([now]).__next__()


def zone(root: Path, path: str, name: str, microjoules: int) -> Path:
    folder = root / "sys/class/powercap" / path
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    return folder / "energy_uj"


def only(found: meters.NodeMeters) -> Meter:
    (meter,) = found.usable
    return meter


def test_rapl_counts_packages_and_their_memory_once_and_survives_a_counter_that_restarts(
    tmp_path: Path, seconds: list[float]
) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    second = zone(tmp_path, "intel-rapl:1", "package-1", RANGE_UJ - 30_000_000)
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 7)
    zone(tmp_path, "intel-rapl:0:0", "core", 3)  # a part of package-0
    zone(tmp_path, "intel-rapl:2", "psys", 3)  # both packages once more
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 3)
    meter = only(find_meters(tmp_path))
    assert meter.watts() == {}
    first.write_text("101000000")
    second.write_text("50000000")
    memory.write_text("10000007")
    seconds[0] += 2
    assert meter.watts() == pytest.approx({"package-0": 50.0, "package-1": 40.0, "dram-0": 5.0})


def test_gpus_count_energy(tmp_path: Path, seconds: list[float], gpus: Gpus) -> None:
    gpus.millijoules = [5_000_000, 0]
    meter = only(find_meters(tmp_path))
    assert meter.watts() == {}
    gpus.millijoules = [5_350_000, 90_000]
    seconds[0] += 0.5
    assert meter.watts() == pytest.approx({"gpu-0": 700.0, "gpu-1": 180.0})


def test_ipmi_reads_the_power_of_the_whole_node(tmp_path: Path, program: Program) -> None:
    program(
        "ipmitool",
        '[ "$*" = "dcmi power reading" ] && echo "    Instantaneous power reading:       314 Watts"',
    )
    assert only(find_meters(tmp_path)).watts() == {"node": 314.0}


def test_each_meter_that_can_t_be_read_is_one_clear_line(tmp_path: Path, program: Program) -> None:
    program("ipmitool", 'echo "Could not open device at /dev/ipmi0" >&2; exit 1')
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 1)
    counter.unlink()
    found = find_meters(tmp_path)
    assert found.usable == []
    assert found.absent == ["NVML: found no GPU"]
    assert found.faulty == [
        f"RAPL: {counter} can't be read (No such file or directory); only root may, unless `chmod a+r` lets others",
        "IPMI: `ipmitool dcmi power reading` gives no reading (Could not open device at /dev/ipmi0)",
    ]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts to read IPMI follow each other at once."""
    monkeypatch.setattr(meters, "IPMI_PAUSE_S", 0)


@pytest.mark.parametrize("said", ["0 Watts", "65535 Watts", "150001 Watts", "na", "N/A Watts", "-3 Watts", "nan Watts",
                                  "7 gigawatts", "", "200"])  # fmt: skip
def test_an_impossible_power_is_not_a_reading_of_ipmi(
    tmp_path: Path, program: Program, impatient: None, said: str
) -> None:
    program("ipmitool", f'echo "    Instantaneous power reading:     {said}"\necho "    Minimum:      314 Watts"')
    zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    found = find_meters(tmp_path)
    assert [meter.name for meter in found.usable] == ["rapl"], "it doesn't displace good meters"
    assert found.faulty[0].startswith("IPMI: ")


@pytest.mark.parametrize(("said", "watts"), [("314 Watts", 314), ("314.5 W", 314.5), ("271000 mW", 271)])
def test_ipmi_may_state_power_in_other_units(tmp_path: Path, program: Program, said: str, watts: float) -> None:
    program("ipmitool", f'echo "    Instantaneous power reading:     {said}"')
    assert only(find_meters(tmp_path)).watts() == {"node": watts}


def test_ipmi_that_is_busy_at_first_is_found(tmp_path: Path, program: Program, impatient: None) -> None:
    busy = tmp_path / "busy"
    busy.touch()
    program("ipmitool", f'[ -e {busy} ] && rm {busy} && exit 1; echo "Instantaneous power reading: 9 Watts"')
    assert only(find_meters(tmp_path)).watts() == {"node": 9}


def test_a_counter_that_stands_still_is_counted_from_before_that(
    tmp_path: Path, seconds: list[float], gpus: Gpus
) -> None:
    gpus.millijoules = [5_000_000, 7_000]
    meter = only(find_meters(tmp_path))
    meter.watts()
    gpus.millijoules = [5_100_000, 7_000]
    seconds[0] += 1
    with pytest.raises(OSError, match="NVML: gpu-1 reads 0 W, expected more than 0 and at most 150,000 W"):
        meter.watts()
    gpus.millijoules = [5_200_000, 47_000]
    seconds[0] += 1
    assert meter.watts() == pytest.approx({"gpu-0": 100, "gpu-1": 20})


def test_a_counter_that_restarts_misses_one_reading(tmp_path: Path, seconds: list[float], gpus: Gpus) -> None:
    gpus.millijoules = [5_000_000]
    meter = only(find_meters(tmp_path))
    meter.watts()
    gpus.millijoules = [3_000]  # the driver was loaded again
    seconds[0] += 1
    with pytest.raises(OSError, match="gpu-0 reads -4997 W"):
        meter.watts()
    gpus.millijoules = [33_000]
    seconds[0] += 1
    assert meter.watts() == pytest.approx({"gpu-0": 30})


def test_a_counter_that_fails_once_counts_the_energy_of_that_time_afterwards(
    tmp_path: Path, seconds: list[float]
) -> None:
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    meter = only(find_meters(tmp_path))
    meter.watts()
    seconds[0] += 1
    counter.write_text("na\n")
    with pytest.raises(OSError, match="holds 'na', expected a number"):
        meter.watts()
    seconds[0] += 1
    counter.write_text("81000000\n")
    assert meter.watts() == pytest.approx({"package-0": 40})


def test_a_driver_that_doesn_t_answer_leaves_blanks_and_doesn_t_end_the_run(gpus: Gpus) -> None:
    gpus.millijoules = [1, 2]
    found = describe.accelerators()
    assert found.pop("accelerators_per_node") == "2"
    assert set(found.values()) == {""}
    assert "NVIDIA driver" not in provenance.software()["other_software_stack"]
    kinds, problems = machine_gpus.gpus_and_problems()
    assert kinds == ["unknown model, unknown memory, driver None"] * 2
    assert problems[0].startswith("GPU 0: the driver can't report its memory")
