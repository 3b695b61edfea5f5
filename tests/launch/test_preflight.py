"""`bertbench preflight` on real gloo processes: four ranks that act as two nodes of two."""

import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from bertbench.cli.json_fields import ANSWERS
from bertbench.cli.main import main
from bertbench.launch.allocation import add_problems
from bertbench.launch.preflight import Node
from lab.spawn import environments_of
from tests.conftest import Captured, write_json
from tests.ranks import answers_of

TWO_NODES = ["--set", "hardware.number_of_nodes=2"]


def preflight(system: str, words: list[str]) -> tuple[int, str]:
    ahead_s = float(os.environ.get("CLOCK_AHEAD_S", "0"))
    if ahead_s:  # a process has no clock of its own to set
        true_time = time.time
        time.time = lambda: true_time() + ahead_s
    output = StringIO()
    with redirect_stdout(output):
        code = main(["preflight", system, *words])
    return code, output.getvalue()


def on_two_nodes(system: str, first_node: Mapping[str, str], second_node: Mapping[str, str], *words: str) -> list[Any]:
    environments = [
        {**alone, "LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2", **(first_node if rank < 2 else second_node)}
        for rank, alone in enumerate(environments_of(4))
    ]
    return answers_of(environments, preflight, system, [*TWO_NODES, *words])


def test_a_sound_allocation_passes_and_its_table_has_a_line_per_node(tiny_file: str) -> None:
    answers = on_two_nodes(tiny_file, {}, {})
    assert [failed or value[0] for failed, value in answers] == [0, 0, 0, 0], answers
    table = answers[0][1][1].splitlines()
    assert [line.split()[:1] + line.split()[2:5] for line in table[1:3]] == [
        ["0", "0", "to", "1"],
        ["1", "2", "to", "3"],
    ]
    assert "all-reduce over all 4 ranks" in table[3]
    assert table[4] == "no problems found"
    assert {text for _, (_, text) in answers[1:]} == {""}


def test_a_node_with_different_data_a_wrong_clock_and_a_slow_network_is_named_with_each(
    tiny_file: str, tiny_folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "data"
    shutil.copytree(tiny_folder, other)
    manifest = other / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"tool_version"', ' "tool_version"'))
    system = json.loads(Path(tiny_file).read_text())
    system["data"]["path"] = "data"
    write_json(Path(tiny_file), system)
    answers = on_two_nodes(
        tiny_file,
        {"DATADIR": str(tiny_folder.parent)},
        {"DATADIR": str(other.parent), "CLOCK_AHEAD_S": "70"},
        "--json", "--min-gbit", "100000",
    )  # fmt: skip
    assert [failed or value[0] for failed, value in answers] == [1, 1, 1, 1], answers
    report = json.loads(answers[0][1][1])
    first, second = report["nodes"]
    assert report["system"] == "tiny"
    assert (first["ranks"], second["ranks"]) == ([0, 1], [2, 3])
    assert ["all-reduce reaches" in problem for problem in first["problems"]] == [True]  # both: there is one pair
    clock, network, data = second["problems"]
    assert "off rank 0's, but only 500 ms are allowed" in clock
    assert 69_000 < second["clock_offset_ms"] < 71_000
    assert "at least 100000 is required" in network
    assert f"its data differ from 1 of 2 nodes: {second['data']}, not {first['data']}" in data
    assert len(report["problems"]) == 4
    assert report["problems"][1].startswith("node 1 (")


def test_alone_it_starts_its_own_ranks_and_says_what_is_missing(
    tiny_file: str, tmp_path: Path, capfd: Captured
) -> None:
    assert main(["preflight", tiny_file, "--json", "--set", f"data.path={tmp_path}/none"]) == 1
    report = json.loads(capfd.readouterr().out)
    (documented,) = ANSWERS["preflight"]
    assert report.keys() == documented.fields.keys() | {"command"}
    (problem,) = report["problems"]
    assert "none/manifest.json: cannot be read (No such file or directory)" in problem
    (node,) = report["nodes"]
    assert node["ranks"] == [0, 1]
    assert node["all_reduce_gbit"] > 0


def nodes_of(count: int) -> list[Node]:
    sound = Node("host", [0], code="c", data="d", gpus=["A100"] * 8, disk_free_gb=50, all_reduce_gbit=1500)
    return [replace(sound, host=f"host{number}", ranks=[number]) for number in range(count)]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"code": "x"}, "its code differs from 4 of 5 nodes: x, not c"),
        ({"gpus": ["A100"] * 7}, "its GPUs differ from 4 of 5 nodes: 7x A100, not 8x A100"),
        ({"gpus": []}, "its GPUs differ from 4 of 5 nodes: none"),
        ({"disk_free_gb": 0.5}, "0.50 GB are free"),
        ({"problems": ["GPU 3: it is too hot"]}, "GPU 3: it is too hot"),
    ],
)
def test_the_only_node_that_differs_from_the_others_is_named(change: dict[str, Any], problem: str) -> None:
    nodes = nodes_of(5)
    nodes[3] = replace(nodes[3], **change)
    judged_nodes = add_problems(nodes, least_gbit=100)
    assert [len(node.problems) for node in judged_nodes] == [0, 0, 0, 1, 0]
    assert problem in judged_nodes[3].problems[0]
