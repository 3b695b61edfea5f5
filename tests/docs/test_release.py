"""The requirements of a release: the same version everywhere, one page with the contact, and no broken links."""

import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.listing import REPOSITORY

RELEASE: dict[str, Any] = runpy.run_path(str(REPOSITORY / "docs" / "site" / "release.py"))
PLACEHOLDER = RELEASE["PLACEHOLDER"]
ROOT_PAGES = ("CONTACT.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "RELEASING.md")
TEMPLATES = sorted((REPOSITORY / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that the checks read."""
    package = "benchmarks/bert/implementation/bertbench/__init__.py"
    for name in (package, "compliance/pyproject.toml", "CITATION.cff", "CHANGELOG.md", *ROOT_PAGES):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, target)
    return tmp_path


def edit(file: Path, pattern: str, replacement: str) -> None:
    text, edits = re.subn(pattern, replacement, file.read_text(), flags=re.MULTILINE)
    assert edits
    file.write_text(text)


@pytest.mark.parametrize("check", ["version_problems", "placeholder_problems", "link_problems"])
def test_versions_dates_and_links_agree_and_only_one_file_has_the_placeholder(check: str) -> None:
    assert list(RELEASE[check](REPOSITORY)) == []


@pytest.mark.parametrize(
    ("file", "pattern", "replacement"),
    [
        ("benchmarks/bert/implementation/bertbench/__init__.py", "^__version__ = .*", '__version__ = "9.1.0"'),
        ("compliance/pyproject.toml", "^version = .*", 'version = "9.1.0"'),
        ("CITATION.cff", "^version: .*", "version: 9.1.0"),
        ("CITATION.cff", "^date-released: .*", "date-released: 2020-01-02"),
    ],
)
def test_a_version_or_a_date_that_differs_is_named(copy: Path, file: str, pattern: str, replacement: str) -> None:
    edit(copy / file, pattern, replacement)
    (problem,) = RELEASE["version_problems"](copy)
    assert problem.split(":")[0] in file


def test_changes_without_a_release_are_named(copy: Path) -> None:
    edit(copy / "CHANGELOG.md", "^## Unreleased$", "## Unreleased\n\n- a change\n")
    (problem,) = RELEASE["unreleased_problems"](copy)
    assert "Unreleased" in problem


def test_the_contact_must_be_set_in_one_file_only(copy: Path) -> None:
    (copy / "CONTACT.md").write_text(f"# Contact\n\n{PLACEHOLDER}\n")
    assert len(list(RELEASE["contact_problems"](copy))) == 1
    (copy / "CONTACT.md").write_text("# Contact\n\nthe address\n")
    assert list(RELEASE["contact_problems"](copy)) == []
    page = copy / ".github" / "ISSUE_TEMPLATE" / "bug.yml"
    page.parent.mkdir(parents=True)
    page.write_text(f"name: {PLACEHOLDER}\n")
    (problem,) = RELEASE["placeholder_problems"](copy)
    assert problem.startswith(".github/ISSUE_TEMPLATE/bug.yml: ")


def test_a_broken_link_is_named(copy: Path) -> None:
    (copy / "SECURITY.md").write_text("[gone](docs/gone.md#top), [elsewhere](https://arxiv.org/abs/2402.02447)\n")
    assert "SECURITY.md: the link to docs/gone.md is broken" in RELEASE["link_problems"](copy)


def test_a_workflow_runs_ci_on_every_push_and_pull_request() -> None:
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "ci.yml").read_text())
    assert set(workflow[True]) == {"push", "pull_request"}  # YAML 1.1 reads the key `on` as true
    (job,) = workflow["jobs"].values()
    assert job["steps"][-1] == {"run": ".ci/run"}
    assert (REPOSITORY / ".ci" / "run").stat().st_mode & 0o111


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_an_issue_template_is_a_form_that_github_accepts(template: Path) -> None:
    form = yaml.safe_load(template.read_text())
    if template.stem == "config":
        assert form == {"blank_issues_enabled": True}
        return
    assert set(form) <= {"name", "description", "labels", "body"}
    for part in form["body"]:
        assert part["type"] in ("textarea", "input", "dropdown", "markdown")
        assert part["attributes"]["label"]
    names = [part["id"] for part in form["body"]]
    assert len(set(names)) == len(names)
