"""docs/json.md lists every field that commands print with --json, with its type, and no other field."""

import contextlib
import io
import json
import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from bertbench.cli.commands import COMMANDS
from bertbench.cli.main import main
from bertbench.runs.files import ResultFiles
from bertbench.training.rank_run import outcome
from tests.conftest import Captured, write_json
from tests.docs.listing import REPOSITORY
from tests.tiny import TINY_SYSTEM

PAGE = REPOSITORY / "docs" / "json.md"
RESULT = "results/cpu_demo/bert/result_0.txt"
ANSWERS = {
    "config list": ["config list"],
    "config init": ["config init --nodes 1 --gpus 8 --gpu-model a100-sxm"],
    "env": ["env"],
    "estimate": ["estimate dgxa100_n1"],
    "estimate --layouts": ["estimate bert10b_n128 --layouts"],
    "plan": ["plan tiny.json", "plan dgxa100_n1"],
    "launch --dry-run": ["launch tiny.json --dry-run", "launch dgxa100_n2 --on slurm --dry-run"],
    "balance": ["balance --lengths data --gpus 2 --batch 2 --steps 2 --methods none,planned"],
    "data prepare": ["data prepare --system tiny.json --text articles.txt --out data"],
    "data verify": ["data verify data"],
    "data verify DOWNLOAD": ["data verify results"],
    "data shuffle": ["data shuffle data --seed 1 --shards 2 --out shuffled"],
    "data show": ["data show data"],
    "finetune squad --score": ["finetune squad --dev tests/finetune/questions.json --score predictions.json"],
    "report": [f"report {RESULT}", "report smoke.txt"],
    "report --list": [f"report --list {RESULT}", "report --list smoke.txt"],
    "compare": [f"compare {RESULT} results/cpu_demo/bert/result_1.txt", "compare smoke.txt smoke.txt"],
    "judge": [f"judge {RESULT}"],
    "judge rules": ["judge rules"],
}
"""Commands whose answers have the fields of a section of the page."""
ELSEWHERE = {
    "config show": "a document of its own form",
    "config schema": "a document of its own form",
    "data convert-hdf5": "the fields of data prepare",
    "data convert-tfrecord": "the fields of data prepare",
    "checkpoint import": "tests/checkpoint",
    "checkpoint show": "tests/checkpoint",
    "checkpoint export": "tests/checkpoint",
    "preflight": "tests/launch/test_preflight.py",
    "evaluate": "tests/checkpoint",
    "fill-mask": "tests/finetune",
    "finetune squad": "tests/finetune",
    "track": "tests/runs/test_trackers.py",
    "package": "tests/runs/test_build.py",
}
"""Commands that take minutes, weights or a tracker; these tests see their fields."""
_TYPES = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object"}
Fields = dict[str, set[str]]


def sections() -> dict[str, Fields]:
    """Return the page's fields and their types, by section."""
    found: dict[str, Fields] = {}
    for title, body in re.findall(r"^### `([^`]+)`\n(.*?)(?=^##|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        rows = re.findall(r"^\| `([\w-]+)` \| ([\w, ]+) \|", body, re.MULTILINE)
        found[title] = {field: set(types.split(", ")) for field, types in rows}
    return found


def fields_of(answer: Any) -> Fields:
    """Return the types of the fields of an answer, or of all objects of a list."""
    fields: Fields = defaultdict(set)
    for row in answer if isinstance(answer, list) else [answer]:
        for name, value in row.items():
            fields[name].add("null" if value is None else _TYPES[type(value)])
    return fields


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path, text: Path) -> Path:
    """A folder with a tiny system and its data, recorded results, predictions and a reference."""
    place = tmp_path_factory.mktemp("json")
    for name in ("results", "tests"):
        (place / name).symlink_to(REPOSITORY / name)
    shutil.copytree(tiny_folder, place / "data")
    shutil.copy(text, place)
    settings = {**TINY_SYSTEM, "data": {**TINY_SYSTEM["data"], "path": str(place / "data")}}
    write_json(place / "tiny.json", settings)
    write_json(place / "predictions.json", {})
    lines = (REPOSITORY / RESULT).read_text().splitlines(keepends=True)
    (place / "smoke.txt").write_text("".join(lines[: len(lines) // 2]))
    return place


def answered(command: str, folder: Path) -> Any:
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as output:
        assert main([*command.split(), "--json"]) in (0, 1)
    return json.loads(output.getvalue())


def measured_fields(section: str, folder: Path) -> Fields:
    fields: Fields = defaultdict(set)
    for command in ANSWERS[section]:
        for name, types in fields_of(answered(command, folder)).items():
            fields[name] |= types
    return fields


SLOW = ("config init", "estimate --layouts")


@pytest.mark.parametrize(
    "section", [pytest.param(section, marks=pytest.mark.slow) if section in SLOW else section for section in ANSWERS]
)
def test_an_answer_has_the_fields_of_the_page_and_no_others(section: str, folder: Path) -> None:
    documented = sections()[section] | {"command": {"text"}}
    fields = measured_fields(section, folder)
    assert fields.keys() == documented.keys()
    for name, types in fields.items():
        assert types <= documented[name], name


def test_a_run_s_answer_has_the_fields_of_the_page() -> None:
    fields = fields_of(outcome(ResultFiles(REPOSITORY / RESULT)))
    assert fields.keys() | {"not_a_result"} == sections()["train"].keys()
    assert all(types <= sections()["train"][name] for name, types in fields.items())


def test_every_command_is_on_the_page() -> None:
    covered = {" ".join(word for word in section.split() if not word.startswith("--")) for section in ANSWERS}
    assert {command.name for command in COMMANDS} <= covered | ELSEWHERE.keys() | {"train", "launch"}
    page = PAGE.read_text()
    assert [command.name for command in COMMANDS if f"`{command.name}" not in page] == []


MISTAKES = [
    "plan nosuch", "plan", "trian", "train cpu_demo --lr 1", "systems", "report no/such/log", "judge --ruleset 5.1.0 x",
    "judge", "balance --gpus 0", "config init --gpus 0", "data", "finetune squad --dev x",
]  # fmt: skip


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_an_object_with_the_message_of_standard_error(command: str, capsys: Captured) -> None:
    try:
        code = main([*command.split(), "--json"])
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer.keys() == {"command", "error"}
    assert (code, answer["error"]["exit_code"]) == (2, 2)
    assert answer["error"]["message"] in err.replace("bertbench: ", "", 1) or answer["error"]["message"] in err


def skeleton(folder: Path) -> str:
    """Return the sections of the page with the types that were seen."""
    text = ""
    for section in ANSWERS:
        rows = [
            f"| `{name}` | {', '.join(sorted(types, key=lambda kind: kind == 'null'))} | |"
            for name, types in measured_fields(section, folder).items()
            if name != "command"
        ]
        text += "\n".join([f"### `{section}`\n", "| field | type | meaning |", "| --- | --- | --- |", *rows]) + "\n\n"
    return text


if __name__ == "__main__":
    sys.stdout.write(skeleton(Path(sys.argv[1])))
