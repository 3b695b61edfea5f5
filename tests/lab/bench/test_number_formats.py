"""`lab number-formats` trains pairs of one seed, and says how many samples the changed format needs."""

import json
import math
from pathlib import Path

import pytest

from bertbench.cli.main import main
from bertbench.common.errors import RunError
from lab.bench import number_formats
from lab.bench.number_formats import COMPARISONS, FormatComparison
from lab.bench.whole_run import Trained
from tests.conftest import Answer, Captured, Printed

SIZES = ("--set", "model.hidden_size=16", "--set", "model.feed_forward_size=32")


def test_the_ratio_is_a_mean_over_seeds_and_the_journal_repeats_nothing(
    tiny_file: str, answer: Answer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    samples = {("bf16", 1): 100, ("fp8", 1): 200, ("bf16", 2): 100, ("fp8", 2): 50, ("bf16", 3): 100, ("fp8", 3): 0}
    asked = []

    def trained(
        _: str, settings: tuple[str, ...], compared: FormatComparison, number_format: str, seed: int
    ) -> dict[str, object]:
        assert compared.recorded_as == "precision"
        asked.append((number_format, seed))
        assert {"evaluation.interval_samples=640", f"precision.compute={number_format}"} <= set(settings)
        needed = samples[number_format, seed]
        return Trained(seconds=1.0, samples=needed, reached=needed > 0, course=[])._asdict()

    monkeypatch.setattr(number_formats, "_trained", trained)
    words = ("lab", "number-formats", "fp8", tiny_file, *SIZES, "--out", tmp_path / "runs")
    first = answer(*words, "--seeds", 2)
    assert asked == [("bf16", 1), ("fp8", 1), ("fp8", 2), ("bf16", 2)], "in turns"
    assert first["ratio"] == pytest.approx(1.0)  # of 2 and 1/2
    # Student's t of one degree of freedom is 12.706, and the deviation of +-ln 2 over root 2 is ln 2
    assert first["high"] == pytest.approx(math.exp(12.706 * math.log(2)), rel=1e-3)
    found = answer(*words, "--seeds", 3)
    assert asked[4:] == [("bf16", 3), ("fp8", 3)]
    assert (found["ratio"], found["missed"]) == (first["ratio"], 1)
    assert [pair["ratio"] for pair in found["pairs"]] == [2.0, 0.5, None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ("fp8", "precision.compute fp8 needs 1.000 times bf16's samples (one pair, which gives no interval)"),
        (
            "residual",
            "precision.residual bf16 needs 1.000 times fp32's samples (one pair, which gives no interval)",
        ),
    ],
)
def test_both_formats_train_and_a_record_keeps_them(
    changed: str, found: str, tiny_file: str, capsys: Captured, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    settings = ("evaluation.target=0.0001", "schedule.max_steps=60")
    words = ["lab", "number-formats", changed, tiny_file, *SIZES, *(f"--set={setting}" for setting in settings)]
    assert main([*words, "--seeds", "1", "--record", str(record)]) == 0
    assert found in capsys.readouterr().out
    kept = json.loads(record.read_text())
    assert kept["results"]["pairs"][0]["changed_samples"] == 648  # 54 steps of 12 are the first to reach 640
    assert kept["system"]["evaluation"]["interval_samples"] == 640


@pytest.mark.slow
def test_a_run_that_took_another_format_is_an_error_that_says_which(tiny_file: str) -> None:
    settings = ("precision.compute=bf16", "evaluation.target=0.0001", "schedule.max_steps=3")
    says = (
        r"seed 4: expected precision\.compute fp8, but the run took bf16 \(no reason recorded\); compare the formats on"
    )
    with pytest.raises(RunError, match=says):
        number_formats._trained(tiny_file, settings, COMPARISONS["fp8"], "fp8", 4)


def test_a_model_that_fp8_cannot_multiply_is_one_message(tiny_file: str, printed: Printed) -> None:
    assert "model.hidden_size is 14; choose a multiple" in printed("lab", "number-formats", "fp8", tiny_file, code=2)
