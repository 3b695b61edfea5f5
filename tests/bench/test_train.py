import json

import pytest

from bertbench.cli import main


def test_ours_alone_stops_after_the_steps_asked_for(
    tiny_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertbench.commands.bench_train.importlib.util.find_spec", lambda _: None)
    assert main(["bench", "train", tiny_file, "--steps", "3", "--json"]) == 0
    answer = capsys.readouterr()
    (ours,) = json.loads(answer.out)
    assert set(ours) == {"name", "seconds_to_target", "samples_to_target", "samples_per_s", "reached"}
    assert (ours["name"], ours["seconds_to_target"], ours["reached"]) == ("bertbench", None, False)
    assert ours["samples_per_s"] > 0
    assert "36 samples" in answer.err  # 3 steps of 12
    assert "make setup" in answer.err


@pytest.mark.slow
def test_the_trainer_reaches_a_target_that_ours_reaches(tiny_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("accelerate")
    assert main(["bench", "train", tiny_file, "--json", "--set", "evaluation.target=0.001"]) == 0
    ours, *rivals = json.loads(capsys.readouterr().out)
    assert ours["reached"] and rivals
    for rival in rivals:
        assert rival["reached"], rival
        assert rival["samples_to_target"] == 36  # 25, rounded up to whole steps of 12


def test_a_mistake_is_one_message(tiny_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "train", tiny_file, "--steps", "0"]) == 2
    assert capsys.readouterr().err == "bertbench: --steps 0: expected at least 1\n"
