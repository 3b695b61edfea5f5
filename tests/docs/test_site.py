"""The site that `make docs` builds: every page is there, and every link between pages leads to a heading."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.listing import REPOSITORY


def build(repository: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a copy of the repository's pages, with warnings as errors."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)


def copied(folder: Path) -> Path:
    """Return a copy of what the site is built from, without most results."""
    for name in ("docs", "README.md", "CHANGELOG.md", "mkdocs.yml", "results/README.md", "results/cpu_demo"):
        source, target = REPOSITORY / name, folder / name
        target.parent.mkdir(exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    return folder


def test_every_page_and_the_report_are_in_the_site(tmp_path: Path) -> None:
    done = build(copied(tmp_path), tmp_path / "site")
    assert done.returncode == 0, done.stderr
    expected = {"index", "results", "changelog", "report"} | {page.stem for page in (REPOSITORY / "docs").glob("*.md")}
    assert expected <= {page.stem for page in (tmp_path / "site").glob("*.html")}


def test_a_link_to_a_heading_that_is_not_there_fails_the_build(tmp_path: Path) -> None:
    readme = copied(tmp_path) / "README.md"
    readme.write_text(f"{readme.read_text()}\n[gone](docs/running.md#no-such-heading)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "no-such-heading" in done.stderr
