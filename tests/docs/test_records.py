"""The tables and pictures on the pages agree with the records of today."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from bertbench.cli.main import main
from tests.conftest import Captured
from tests.docs.listing import PAGES as LISTED
from tests.docs.listing import REPOSITORY

SHOWN: dict[str, Any] = runpy.run_path(str(REPOSITORY / "docs" / "site" / "shown.py"))
DRAWING: dict[str, Any] = runpy.run_path(str(REPOSITORY / "docs" / "site" / "pictures.py"))
PAGES = [page for page in SHOWN["pages"]() if "<!-- shown: " in page.read_text()]
SIMULATED = json.loads((REPOSITORY / "results" / "simulated" / "balance.json").read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_the_records_of_today(page: Path) -> None:
    assert SHOWN["current"](page.read_text()) == page.read_text(), "run python docs/site/shown.py"


@pytest.mark.parametrize("file", DRAWING["PICTURES"])
def test_a_picture_is_drawn_from_the_records_and_a_page_describes_it_as_of_today(file: str) -> None:
    picture = DRAWING["drawn"](file)
    assert picture.svg.startswith("<?xml") and "</svg>" in picture.svg
    described = re.compile(rf"!\[{re.escape(picture.description)}\]\((docs/)?{file}\)")
    assert any(described.search(page.read_text()) for page in LISTED), (
        f"run python docs/site/pictures.py; a page needs ![{picture.description}]({file})"
    )


def test_the_page_states_what_an_h100_showed_of_recorded_steps() -> None:
    record = json.loads((REPOSITORY / "results" / "gpu_check" / "nvidia_h100_afa5f921.json").read_text())
    (rows,) = (part["rows"] for part in record["parts"] if part["name"] == "capture")
    by_torch, by_triton = rows[:2]
    plain = [row["plain_step_ms"] for row in rows]
    page = " ".join((REPOSITORY / "docs" / "performance.md").read_text().split())
    assert f"takes {by_triton['step_ms']:.1f} ms, and {by_torch['step_ms']:.1f} ms with torch's LAMB" in page
    assert f"launched one by one, and it takes {min(plain):.0f} to {max(plain):.0f} ms" in page
    assert f"differ by {1e6 * by_triton['from_plain']:.0f} millionths" in page
    assert f"they differ by {1e6 * max(row['from_plain'] for row in rows):.0f} millionths" in page


def test_every_picture_of_docs_has_a_function_that_draws_it() -> None:
    pictures = {path.name for kind in ("svg", "png") for path in (REPOSITORY / "docs").glob(f"*.{kind}")}
    assert pictures == set(DRAWING["PICTURES"])


@pytest.mark.slow  # two minutes
@pytest.mark.parametrize("command", SIMULATED)
def test_a_simulated_record_is_what_balance_computes(command: str, capsys: Captured) -> None:
    if "--lengths data/cpu_demo" in command and not Path("data/cpu_demo").exists():
        pytest.skip("make data/cpu_demo with: bertbench data prepare --system cpu_demo")
    main([*command.split()[1:], "--json"])
    computed = set()
    for row in json.loads(capsys.readouterr().out):
        load_efficiency = round(row["load_efficiency"], 4)
        received = round(row["bytes_per_rank_per_step"])
        computed.add((row["method"], row["gpus"], row["local_batch"], load_efficiency, received))
    assert {tuple(row.values()) for row in SIMULATED[command]} <= computed
