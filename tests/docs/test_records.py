"""What pages show of records, and the picture, are what the records hold today."""

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
PICTURES: dict[str, Any] = runpy.run_path(str(REPOSITORY / "docs" / "site" / "picture.py"))["PICTURES"]
PAGES = [page for page in SHOWN["pages"]() if "<!-- shown: " in page.read_text()]
SIMULATED = json.loads((REPOSITORY / "results" / "simulated" / "balance.json").read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_its_records_as_they_are(page: Path) -> None:
    assert SHOWN["current"](page.read_text()) == page.read_text(), "run python docs/site/shown.py"


@pytest.mark.parametrize("file", PICTURES)
def test_a_picture_is_of_todays_records_and_a_page_describes_it_as_it_is(file: str) -> None:
    picture = PICTURES[file]()
    assert (REPOSITORY / "docs" / file).read_text() == picture.drawn, "run python docs/site/picture.py"
    described = re.compile(rf"!\[{re.escape(picture.description)}\]\((docs/)?{file}\)")
    assert any(described.search(page.read_text()) for page in LISTED), f"no page has ![{picture.description}]({file})"


def test_every_picture_of_docs_is_on_a_page() -> None:
    shown = "".join(page.read_text() for page in LISTED)
    pictures = [path.name for kind in ("svg", "png") for path in (REPOSITORY / "docs").glob(f"*.{kind}")]
    assert [name for name in pictures if name not in shown] == []


@pytest.mark.slow  # two minutes
@pytest.mark.parametrize("command", SIMULATED)
def test_a_simulated_record_is_what_balance_computes(command: str, capsys: Captured) -> None:
    if "--lengths data/cpu_demo" in command and not Path("data/cpu_demo").exists():
        pytest.skip("make data/cpu_demo with: bertbench data prepare --system cpu_demo")
    main([*command.split()[1:], "--json"])
    computed = [
        (row["method"], row["gpus"], row["batch"], round(row["efficiency"], 4), round(row["bytes_per_rank_per_step"]))
        for row in json.loads(capsys.readouterr().out)
    ]
    assert {tuple(row.values()) for row in SIMULATED[command]} <= set(computed)
