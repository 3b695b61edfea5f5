"""List what still prevents a release by RELEASING.md: wrong versions or dates, a missing contact, and broken links.

`make release-check` runs this script. The exit code is 1 if it lists anything.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PLACEHOLDER = "CONTACT-TO-BE-SET"
"""Placeholder for an address; only CONTACT.md may contain it."""
_PAGES = (
    "*.md", "*.cff", "*.toml", "docs/*.md", "results/*.md", "compliance/*.md", "benchmarks/bert/*.md",
    ".github/**/*.md", ".github/**/*.yml",
)  # fmt: skip
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_RELEASED = re.compile(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d{2}-\d{2})$", re.MULTILINE)
_UNRELEASED = re.compile(r"^## Unreleased\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)


def version_problems(repository: Path) -> Iterator[str]:
    """Yield the files whose version or date differs from CHANGELOG.md's newest release."""
    package = (repository / "benchmarks/bert/implementation/bertbench/__init__.py").read_text()
    judge = tomllib.loads((repository / "compliance/pyproject.toml").read_text())["project"]["version"]
    citation = (repository / "CITATION.cff").read_text()
    newest = _RELEASED.search((repository / "CHANGELOG.md").read_text())
    if newest is None:
        yield "CHANGELOG.md: no heading '## VERSION - DATE'"
        return
    version, date = newest.groups()
    stated = {
        "bertbench/__init__.py": re.findall(r'^__version__ = "(.*)"$', package, re.MULTILINE),
        "compliance/pyproject.toml": [judge],
        "CITATION.cff": re.findall(r"^version: (.*)$", citation, re.MULTILINE),
    }
    for file, versions in stated.items():
        if versions != [version]:
            yield f"{file}: version {', '.join(versions) or 'missing'}; CHANGELOG.md's newest release is {version}"
    if f"\ndate-released: {date}\n" not in citation:
        yield f"CITATION.cff: date-released is not {date}, the date of {version} in CHANGELOG.md"


def unreleased_problems(repository: Path) -> Iterator[str]:
    """Yield a line if CHANGELOG.md has changes that belong to no release."""
    section = _UNRELEASED.search((repository / "CHANGELOG.md").read_text())
    if section is None:
        yield "CHANGELOG.md: no heading '## Unreleased'"
    elif section[1].strip():
        yield "CHANGELOG.md: changes under 'Unreleased'; move them to the release"


def contact_problems(repository: Path) -> Iterator[str]:
    """Yield a line if CONTACT.md has no address."""
    if PLACEHOLDER in (repository / "CONTACT.md").read_text():
        yield f"CONTACT.md: replace {PLACEHOLDER} with an address"


def placeholder_problems(repository: Path) -> Iterator[str]:
    """Yield other pages that contain the placeholder."""
    for page in pages(repository):
        if page.name != "CONTACT.md" and PLACEHOLDER in page.read_text():
            yield f"{page.relative_to(repository)}: contains the placeholder; link to CONTACT.md instead"


def link_problems(repository: Path) -> Iterator[str]:
    """Yield broken links on pages at the root; `make docs` checks the pages of the site."""
    for page in repository.glob("*.md"):
        for target in _LINK.findall(page.read_text()):
            if not (repository / target).exists():
                yield f"{page.name}: the link to {target} is broken"


def pages(repository: Path) -> list[Path]:
    """Return the pages that a reader of the project, or of its package, sees."""
    return [page for pattern in _PAGES for page in sorted(repository.glob(pattern))]


CHECKS = (version_problems, unreleased_problems, contact_problems, placeholder_problems, link_problems)

if __name__ == "__main__":
    problems = [problem for check in CHECKS for problem in check(Path(__file__).parents[2])]
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(bool(problems))
