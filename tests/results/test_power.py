"""Power in a package: MLPerf's files, made from the readings next to the logs, which the official tools accept."""

import json
import re
import shutil
from pathlib import Path

import pytest
from mlperf_logging.result_summarizer import result_summarizer

from bertbench.run_files.energy import energy
from compliance.read.log import read_events
from compliance.read.run import RunFacts
from tests.compliance.logs import RESULTS
from tests.conftest import Printed
from tests.results.packaging import content, official, words


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The demo's ten runs, with two nodes' readings beside each log: 200 to 206 W by turns, and 90 W."""
    folder = shutil.copytree(RESULTS, tmp_path / "results" / "cpu_demo" / "bert")
    settings = {"measure": True, "hz": 2.0, "conversion_efficiency": 0.5, "interconnect_watts": 11.0}
    for log in folder.glob("result_*.txt"):
        facts = RunFacts(read_events(log))
        for node, least, turns in ((0, 200, 4), (1, 90, 1)):
            times = range(int(facts.started_ms) - 1300, int(facts.stopped_ms) + 2000, 490)
            lines = [{"node": f"host{node}", "meters": ["ipmi"]}]
            lines += [{"time_ms": time, "watts": least + 2 * (n % turns)} for n, time in enumerate(times)]
            file = log.with_suffix("") / "power" / f"node_{node}.jsonl"
            file.parent.mkdir(exist_ok=True)
            file.write_text(
                "".join(f"{json.dumps(line)}\n" for line in lines) + '{"time_ms": 1, "missed": "busy"}\n{"time_ms": 1'
            )
        config = log.with_suffix("") / "config.json"
        config.write_text(json.dumps(content(config) | {"power": settings}))
        description = log.with_suffix("") / "system.json"
        description.write_text(json.dumps(content(description) | {"number_of_nodes": "2"}))
    return tmp_path / "results"


def test_a_package_contains_the_power_of_each_run_and_the_official_tools_accept_it(
    results: Path, tmp_path: Path, printed: Printed
) -> None:
    out = tmp_path / "org"
    assert "energy " in printed(*words(out, results))
    folder = out / "results" / "cpu_demo" / "bert"
    for run in range(10):
        names = sorted(path.name for path in (folder / "power" / f"result_{run}").iterdir())
        assert names == ["node_0.txt", "node_1.txt", "sw_0.txt"]
    described = content(folder / "power" / "description.json")
    assert described == {
        "meters": ["ipmi"], "measured": "whole nodes", "measurement_type": ["AC"], "readings_per_second": 2.0,
        "missed_readings": 20,
        "conversion_efficiency": 0.5, "interconnect_watts": 11.0, "hosts": {"node_0": "host0", "node_1": "host1"},
    }  # fmt: skip
    said = official("package_checker", out)
    assert "FOUND NO ERRORS, SUCCESS" in said
    assert not re.search("power result|power files|Inconsistent number", said)
    log = results / "cpu_demo" / "bert" / "result_3.txt"
    facts = RunFacts(read_events(log))
    reported = energy(log, facts)
    # private there, but its command gives no energy of a single run
    theirs = result_summarizer._compute_total_power(
        str(folder), str(folder / "result_3.txt"), 1e3 * facts.time_to_train_s, "5.0.0"
    )
    assert reported["joules"] == pytest.approx(theirs, rel=1e-9)
    assert reported["watts"]["node_0"] == pytest.approx(0.5 * 203, abs=0.1)
    assert reported["watts"]["node_1"] == pytest.approx(0.5 * 90)


def test_runs_are_refused_if_some_were_not_measured(results: Path, tmp_path: Path, printed: Printed) -> None:
    for run in (4, 6):  # the official checker accepts one
        shutil.rmtree(results / "cpu_demo" / "bert" / f"result_{run}" / "power")
    out = tmp_path / "org"
    said = printed(*words(out, results), code=1)
    assert "power/result_4: number of measured nodes: 0\n    expected: 2, the system's number of nodes" in said
    assert not out.exists()
