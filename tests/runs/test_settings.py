"""Runs with different settings never share a mean: the log and the files next to it show the difference."""

from pathlib import Path
from typing import Any

import pytest

from bertbench.runs.tables import report_text
from tests.compliance.packages import line, run_log
from tests.runs.reports import groups_of, page_of
from tests.runs.written import leave


def config(rate: float = 1e-3, **clip: Any) -> dict[str, Any]:
    return {
        "name": "toy",
        "description": "a toy",
        "optimizer": {"learning_rate": rate},
        "clip": {"max_norm": 1, **clip},
    }


def origin(seed: int) -> dict[str, Any]:
    return {"seed": seed, "commit": "a" * 40, "processor": "one", "cores": 2}


def tables(folder: Path) -> list[tuple[dict[str, Any], int, float]]:
    """Return the distinguishing settings of each table, its number of runs, and their mean."""
    return [(group.settings, len(group.runs), group.mean_time_to_train_s) for group in groups_of(folder)]


def shown(folder: Path) -> list[str]:
    return [report_text(group, detailed=False) for group in groups_of(folder)]


def test_an_override_makes_separate_tables_with_their_own_means(tmp_path: Path) -> None:
    for number, (seconds, rate) in enumerate(((10, 1e-3), (50, 2e-3), (30, 1e-3), (70, 2e-3))):
        leave(tmp_path, number, seconds, config(rate), origin(number))
    assert tables(tmp_path) == [
        ({"optimizer.learning_rate": 0.001}, 2, 20.0), ({"optimizer.learning_rate": 0.002}, 2, 60.0),
    ]  # fmt: skip
    assert "result_1" not in shown(tmp_path)[0]
    page = page_of(tmp_path)
    for rate, heading in zip(("0.001", "0.002"), shown(tmp_path), strict=True):
        assert heading.startswith(f"toy: optimizer.learning_rate={rate}\n")
        assert f"toy: optimizer.learning_rate={rate}" in page


def test_a_setting_that_only_one_run_names_separates_it_but_null_does_not(tmp_path: Path) -> None:
    for number, clip in enumerate(({}, {"buckets": None}, {"buckets": "own"})):
        leave(tmp_path, number, 10, config(**clip))
    assert tables(tmp_path) == [({"clip.buckets": None}, 2, 10.0), ({"clip.buckets": "own"}, 1, 10.0)]


@pytest.mark.parametrize(
    ("where", "key", "values"),
    [
        ("run.json", "commit", ("a" * 40, "b" * 40)),
        ("run.json", "processor", ("one", "another")),
        ("log", "resumed", (False, True)),
        ("log", "global_batch_size", (448, 7)),
        ("log", "opt_base_learning_rate", (4.25e-4, 7)),
        ("log", "submission_division", ("open", "closed")),
        ("log", "submission_platform", ("toy", "other")),
    ],
)
def test_settings_in_a_log_or_the_file_next_to_it_separate_runs(
    tmp_path: Path, where: str, key: str, values: tuple[Any, Any]
) -> None:
    for number, value in enumerate(values):
        logged = line(key, value) + "\n" if where == "log" and value else ""
        log = logged + run_log("open", evaluations=2, seconds=10 * (number + 1))
        leave(tmp_path, number, 0, None, origin(number) | ({key: value} if where == "run.json" else {}), log)
    reached = 20.0 if value != "closed" else None  # the judge fails a closed run of two evaluations
    assert tables(tmp_path) == [({key: values[0]}, 1, 10.0), ({key: values[1]}, 1, reached)]
    if key == "commit":
        assert shown(tmp_path)[0].startswith("toy: commit=aaaaaaa\n")


def test_a_run_with_fewer_known_settings_joins_the_only_group_that_it_agrees_with(tmp_path: Path) -> None:
    leave(tmp_path, 0, 10)
    leave(tmp_path, 1, 20, config(), origin(1))
    (tmp_path / "result_2.txt").write_text("no log")
    assert [(found, runs) for found, runs, _ in tables(tmp_path)] == [({}, 3)]


def test_a_run_that_could_belong_to_several_groups_is_in_none_of_their_means(tmp_path: Path) -> None:
    leave(tmp_path, 0, 10, config(1e-3))
    leave(tmp_path, 1, 20, config(2e-3))
    leave(tmp_path, 2, 30)
    leave(tmp_path, 3, 50)
    key = "optimizer.learning_rate"
    assert tables(tmp_path) == [({key: 0.001}, 1, 10.0), ({key: 0.002}, 1, 20.0), ({key: "unknown"}, 2, 40.0)]


def test_differences_can_neither_steer_a_terminal_nor_fill_a_screen(tmp_path: Path) -> None:
    for number in range(2):
        settings = {f"\x1b[{key}m{'k' * 90}": f"\x07{number}{'v' * 90}" for key in range(9)}
        leave(tmp_path, number, 10, settings, {"nan": [float("nan")]})
    first = shown(tmp_path)[0].splitlines()[0]
    assert first.isprintable()
    assert first.endswith(", and 3 more")
    assert len(first) < 600
