import json
from pathlib import Path

import pytest

from bertbench.cli import main


def test_ours_alone_stops_after_the_steps_asked_for(
    tiny_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("lab.bench.train.importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("sys.argv", ["bertbench", "lab", "train", "--record", "FILE", "tiny"])
    record = tmp_path / "train.json"
    assert main(["lab", "train", tiny_file, "--steps", "3", "--json", "--record", str(record)]) == 0
    answer = capsys.readouterr()
    (ours,) = json.loads(answer.out)
    assert set(ours) == {"name", "seconds_to_target", "samples_to_target", "samples_per_s", "reached"}
    assert (ours["name"], ours["seconds_to_target"], ours["reached"]) == ("bertbench", None, False)
    assert ours["samples_per_s"] > 0
    assert "36 samples" in answer.err  # 3 steps of 12
    assert "make setup" in answer.err
    kept = json.loads(record.read_text())
    assert kept["results"] == [ours]
    assert kept["command"] == "bertbench lab train tiny"
    assert kept["commit"] and kept["processor"]
    assert kept["printed"][-1].startswith("bertbench ")
    ((course,),) = kept["courses"].values()
    ((seconds, accuracy),) = course  # one evaluation, after the last step
    assert seconds > 0 and 0 <= accuracy <= 1


def test_a_wrong_setting_of_the_rivals_is_one_message(tiny_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "train", tiny_file, "--rival-set", "optimizer.rate=1"]) == 2
    assert "optimizer.rate" in capsys.readouterr().err


@pytest.mark.slow
def test_the_trainer_reaches_a_target_that_ours_reaches(tiny_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("accelerate")
    assert main(["lab", "train", tiny_file, "--json", "--set", "evaluation.target=0.001"]) == 0
    ours, *rivals = json.loads(capsys.readouterr().out)
    assert ours["reached"] and rivals
    for rival in rivals:
        assert rival["reached"], rival
        assert rival["samples_to_target"] == 36  # 25, rounded up to whole steps of 12


def test_a_mistake_is_one_message(tiny_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "train", tiny_file, "--steps", "0"]) == 2
    assert capsys.readouterr().err == "bertbench: --steps 0: expected at least 1\n"
