"""The site that `make docs` builds has every page, and every link between pages leads to a heading."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.listing import PAGES, REPOSITORY


def test_every_page_is_in_the_site_and_a_broken_link_to_a_heading_is_found(tmp_path: Path) -> None:
    for name in ("docs", "README.md", "CHANGELOG.md", "mkdocs.yml", "results", "compliance", "lab"):
        source, target = REPOSITORY / name, tmp_path / name
        target.parent.mkdir(exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    (tmp_path / "README.md").open("a").write("\n[gone](docs/running.md#no-such-heading)\n")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert "no-such-heading" in warning
    expected = {"index", "results", "judge", "rules", "changelog", "report", "commands"}
    expected |= {page.stem for page in PAGES[1:]}
    site = tmp_path / "site"
    assert expected <= {page.stem for page in site.glob("*.html")}
    assert "href" not in (site / "report.html").read_text(), "no log is on the site"
