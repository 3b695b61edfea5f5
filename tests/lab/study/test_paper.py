"""The paper's questions: each command runs once, and their results make one answer."""

import json
from pathlib import Path

import pytest

from bertbench.common.errors import RunError
from bertbench.common.progress import Progress
from lab.study.paper import PARTS, PaperPart, run_parts
from tests.conftest import Answer, Printed

QUIET = Progress(False)


def test_a_part_runs_once_and_a_failure_keeps_the_finished_parts(tmp_path: Path) -> None:
    parts = (PaperPart("there", "", "config list"), PaperPart("wrong", "", "config show nosuch"))
    for _ in range(2):
        with pytest.raises(RunError, match=r"`bertbench config show nosuch` ended with code 2"):
            run_parts(tmp_path, parts, QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["there.json"]
    (tmp_path / "there.json").write_text('["kept"]')
    assert run_parts(tmp_path, parts[:1], QUIET) == {"there": ["kept"]}


def test_the_command_reads_the_answers_of_its_folder(tmp_path: Path, answer: Answer, printed: Printed) -> None:
    study = {"comparisons": [{"kind": "before", "ratio": 1.25}], "at_equal_values": [{"kind": "bucket"}]}
    for part in PARTS:
        found = study if part.keeps_runs else [{"method": "planned", "efficiency": 0.125}]
        (tmp_path / f"{part.name}.json").write_text(json.dumps(found))
    found = answer("lab", "paper", "--out", tmp_path)
    rows = {one["part"]: one["rows"] for one in found["answers"]}
    assert rows["clip"] == [{"kind": "before", "ratio": 1.25}, {"kind": "bucket"}]
    assert rows["causal"] == [{"method": "planned", "efficiency": 0.125}]
    logged = {(row["rounds"], row["submitter"]): round(row["seconds"], 1) for row in found["published"]}
    assert (logged["1.1", "NVIDIA"], logged["1.1", "Samsung"]) == (33.5, 25.1)
    assert {one["command"] for one in found["answers"]} == {f"bertbench {part.command}" for part in PARTS if part.asks}
    said = printed("lab", "paper", "--out", tmp_path)
    assert all(part.command in said for part in PARTS if part.asks)


@pytest.mark.slow
def test_every_part_except_training_and_timing_is_a_command_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATADIR", str(tmp_path / "data"))
    quick = tuple(part for part in PARTS if not part.command.startswith("lab "))
    assert set(run_parts(tmp_path, quick, QUIET)) == {part.name for part in quick}
