"""The energy of a run, from files like the kernel's and a library like NVIDIA's."""

from pathlib import Path

import pytest

from bertbench.distributed.world import World
from bertbench.machine import describe, provenance
from bertbench.machine import energy as machine_energy
from bertbench.machine import gpus as machine_gpus
from bertbench.machine.energy import RunEnergy
from bertbench.training.in_process import run_training
from tests.conftest import Answer, Tiny
from tests.machine.driver import H100, Card, Driver, install
from tests.ranks import run_ranks

LARGEST_UJ = 262_143_328_850


class CountingDriver(Driver):
    """NVIDIA's library with a counter for each GPU, in millijoules; the first gains 500 mJ at each reading."""

    def __init__(self, millijoules: list[int]) -> None:
        super().__init__([H100._replace(uuid=str(number)) for number in range(len(millijoules))])
        self.millijoules = millijoules

    def nvmlDeviceGetTotalEnergyConsumption(self, card: Card) -> int:  # noqa: N802 - the library's name
        """Return the counter."""
        number = int(card.uuid)
        if number == 0:
            self.millijoules[0] += 500
        return self.millijoules[number]


def counting(monkeypatch: pytest.MonkeyPatch, *millijoules: int) -> CountingDriver:
    """Let this process find GPUs with these counters, and no counters of processors."""
    driver = CountingDriver([*millijoules])
    for module in (describe, machine_energy, machine_gpus, provenance):
        monkeypatch.setattr(module, "pynvml", driver)
    return driver


def zone(powercap: Path, path: str, name: str, microjoules: int) -> Path:
    """Make a zone of RAPL, and return the file with its counter."""
    folder = powercap / path
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{LARGEST_UJ}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    return folder / "energy_uj"


def test_packages_and_their_memory_count_once_and_a_counter_that_wraps_goes_on(tmp_path: Path) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    second = zone(tmp_path, "intel-rapl:1", "package-1", LARGEST_UJ - 30_000_000)
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 7)
    zone(tmp_path, "intel-rapl:0:0", "core", 3)  # a part of package-0
    zone(tmp_path, "intel-rapl:2", "psys", 3)  # both packages once more
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 3)
    energy = RunEnergy(reads=True, powercap=tmp_path)
    energy.start()
    first.write_text("101000000")
    second.write_text("50000000")
    memory.write_text("10000007")
    energy.stop()
    assert energy.joules() == {"rapl": pytest.approx(100 + (30 + 50) + 10)}


def test_a_counter_that_wraps_twice_in_a_run_is_looked_at_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_energy, "_LOOK_S", 0)
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 0)
    energy = RunEnergy(reads=True, powercap=tmp_path)
    energy.start()
    for microjoules in (200_000_000_000, 100_000_000_000, 50_000_000_000):
        counter.with_suffix(".new").write_text(str(microjoules))
        counter.with_suffix(".new").replace(counter)  # never seen half written
        looked_at = energy._counters["rapl"][0]
        while looked_at._last_j != microjoules / 1e6:
            pass
    energy.stop()
    assert energy.joules() == {"rapl": pytest.approx(2 * LARGEST_UJ / 1e6 + 50_000)}


@pytest.mark.parametrize("fault", ["missing", "no number", "stands still"])
def test_a_node_whose_counter_can_t_be_read_has_no_energy(tmp_path: Path, fault: str) -> None:
    good = zone(tmp_path, "intel-rapl:0", "package-0", 0)
    bad = zone(tmp_path, "intel-rapl:1", "package-1", 0)
    energy = RunEnergy(reads=True, powercap=tmp_path)
    energy.start()
    good.write_text("5000000")
    if fault == "missing":
        bad.unlink()
    if fault == "no number":
        bad.write_text("na\n")
    energy.stop()
    assert energy.joules() == {}


def test_gpus_count_energy_and_one_that_was_reset_counts_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = counting(monkeypatch, 5_000_000, 0)
    energy = RunEnergy(reads=True, powercap=tmp_path)
    energy.start()
    driver.millijoules[1] = 90_000
    energy.stop()
    assert energy.joules() == {"nvml": pytest.approx(0.5 + 90)}

    energy = RunEnergy(reads=True, powercap=tmp_path)
    energy.start()
    driver.millijoules[1] = 1
    energy.stop()
    assert energy.joules() == {}


def test_gpus_without_a_counter_and_machines_without_gpus_have_no_energy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for cards in ([H100], []):
        install(monkeypatch, *cards)
        energy = RunEnergy(reads=True, powercap=tmp_path)
        energy.start()
        energy.stop()
        assert energy.joules() == {}


def test_nodes_add_up_the_counters_that_all_of_them_have() -> None:
    assert run_ranks(3, _gather) == [{"nvml": 30.5}] * 3


def _gather(world: World) -> dict[str, float]:
    energy = RunEnergy(reads=world.rank != 1)  # ranks 0 and 1 share a node
    joules = {0: {"nvml": 10.0, "rapl": 7.0}, 2: {"nvml": 20.5}}.get(world.rank, {})
    energy.joules = lambda: joules  # type: ignore[method-assign]
    return energy.gathered(world)


def test_a_run_logs_its_energy_and_the_report_shows_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: Tiny, answer: Answer
) -> None:
    counting(monkeypatch, 5_000_000)
    log = tmp_path / "result_0.txt"
    run_training(tiny("launch.ranks_per_node=1", "schedule.max_steps=3"), log=log)
    (reported,) = answer("report", log)
    energy = reported["runs"][0]["energy"]
    assert energy["counters"]["nvml"] == 0.5, "one reading when the clock starts, and one when it stops"
    assert energy["joules"] == sum(energy["counters"].values())
