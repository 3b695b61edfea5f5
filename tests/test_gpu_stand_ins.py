"""What only a GPU reaches in a few lines of ours, with stand-ins for torch's and Linux's side of it."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bertbench.common.phase_clock import PhaseClock
from bertbench.common.phases import FORWARD, OPTIMIZER, PHASES
from bertbench.distributed import cores
from bertbench.distributed.device_steps import DeviceSteps
from bertbench.training.recording import recorder


class Graph:
    """A CUDA graph that counts its replays."""

    def __init__(self) -> None:
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1


def test_graphs_are_recorded_on_one_stream_and_from_one_pool_while_other_threads_query_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parameters = inspect.signature(torch.cuda.graph)  # of this torch
    recordings: list[dict[str, Any]] = []

    @contextmanager
    def recording(*arguments: Any, **options: Any) -> Iterator[None]:
        recordings.append(dict(parameters.bind(*arguments, **options).arguments))
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    stream: Any = "stream"
    record = recorder(stream)
    answers = [torch.ones(2), torch.zeros(3)]
    replays = [record(lambda answer=answer: answer) for answer in answers]  # type: ignore[misc]
    first, second = recordings
    for recorded in recordings:
        assert (recorded["pool"], recorded["stream"]) == ("pool", "stream")
        assert recorded["capture_error_mode"] == "thread_local"
    assert replays[1]() is answers[1]
    assert (first["cuda_graph"].replays, second["cuda_graph"].replays) == (0, 1)


class Event:
    """An event whose device passes a mark each millisecond."""

    marks = 0

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing
        self.is_awaited = False

    def record(self) -> None:
        Event.marks += 1
        self.at = Event.marks

    def synchronize(self) -> None:
        self.is_awaited = True

    def elapsed_time(self, later: "Event") -> float:
        assert later.is_awaited
        return float(later.at - self.at)


def test_phases_on_a_gpu_last_from_event_to_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = PhaseClock(torch.device("cuda"))
    clock.enter(FORWARD)  # mark 1
    outer = clock.enter(OPTIMIZER)  # mark 2
    clock.enter(outer)  # mark 3
    clock.enter(None)  # mark 4
    by_phase = dict(zip(PHASES, clock.total_ms(), strict=True))
    assert (by_phase[FORWARD], by_phase[OPTIMIZER], sum(by_phase.values())) == (2.0, 1.0, 3.0)


def test_a_step_s_event_is_recorded_on_the_stream_of_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda", 3)
    events = [SimpleNamespace(query=lambda: True), SimpleNamespace(query=lambda: False)]
    streams = {device: SimpleNamespace(record_event=iter(events).__next__)}
    monkeypatch.setattr(torch.cuda, "current_stream", streams.__getitem__)
    steps = DeviceSteps.on(device)
    steps.launched(1)
    steps.launched(2)
    steps.look()
    assert steps.finished == 1


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="cores are known on Linux only")
def test_a_gpu_s_rank_takes_the_cores_near_it_or_all_if_none_is_allowed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: place)
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda process: {0, 1, 4, 5})
    monkeypatch.setattr(cores, "_siblings", lambda core: {core})
    monkeypatch.setattr(cores, "_PCI", tmp_path)
    device = torch.device("cuda", 0)
    assert cores.nearby_cores(device) == [0, 1, 4, 5], "Linux doesn't say which are near"
    (tmp_path / "0000:1b:02.0").mkdir()
    (tmp_path / "0000:1b:02.0" / "local_cpulist").write_text("4-7\n")
    assert cores.nearby_cores(device) == [4, 5]
    (tmp_path / "0000:1b:02.0" / "local_cpulist").write_text("8-11\n")
    assert cores.nearby_cores(device) == [0, 1, 4, 5]
