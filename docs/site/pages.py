"""Hook for mkdocs: add the pages that aren't in docs/, and rewrite the links that leave it.

README.md, results/README.md, compliance/README.md and CHANGELOG.md become pages. reference.py returns the pages of
commands and of the judge's rules, and `bertbench report` draws one of results/. Links between pages stay links. If
GitHub builds the site (GITHUB_REPOSITORY), a link to another file leads to the repository there; otherwise it becomes
plain text. A picture is a link to itself, to be seen at full size.
"""

import os
import posixpath
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_REPOSITORY = Path(__file__).parents[2]
_PAGES = {
    "README.md": "index.md", "results/README.md": "results.md", "compliance/README.md": "judge.md",
    "CHANGELOG.md": "changelog.md",
}  # fmt: skip
_BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LONGEST_LINE = 100  # characters that fit at the usual font size
_INLINE_CODE = re.compile(r"<code>[^\n]*?</code>")
_OPTION = re.compile(r"(?<=[\s>])--?[a-z][\w-]*")
_LINK_TO_LOG = re.compile(r'<a href="[^"]*">(.*?)</a>')
_LINK = re.compile(r"(!?)\[([^]]*)\]\(([^)#:]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, the generated ones, and the report of results/ without links to absent logs."""
    for source, page in _PAGES.items():
        files.append(File.generated(config, page, content=(_REPOSITORY / source).read_text()))
    for name in ("commands", "rules"):
        files.append(File.generated(config, f"{name}.md", content=_reference(name)))
    files.append(File.generated(config, "report.html", content=_report()))
    files.append(File.generated(config, "wide.css", content=Path(__file__).with_name("wide.css").read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point each link to its page or picture on this site, or to the repository."""
    source = next((path for path, name in _PAGES.items() if name == page.file.src_uri), f"docs/{page.file.src_uri}")

    def led(link: re.Match[str]) -> str:
        picture, text, target, anchor = link.groups(default="")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        name = _PAGES.get(path, path.removeprefix("docs/"))
        if path in _PAGES or path.startswith("docs/"):
            shown = f"[![{text}]({name})]" if picture else f"[{text}]"
            return f"{shown}({name}{anchor})"
        repository = os.environ.get("GITHUB_REPOSITORY")
        return f"[{text}](https://github.com/{repository}/blob/main/{path}{anchor})" if repository else text

    return _BLOCK.sub(_sized, _LINK.sub(led, markdown))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark the options in inline code, which wide.css keeps on one line."""
    return _INLINE_CODE.sub(lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)


def _reference(name: str) -> str:
    """Return a page of reference.py. Another process makes it, because this one can't import lab/."""
    command = [sys.executable, "-c", f"from docs.site import reference; print(reference.{name}())"]
    done = subprocess.run(
        command, check=True, cwd=_REPOSITORY, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "100"}
    )
    return done.stdout


def _report() -> str:
    """Return the page that `bertbench report` draws of results/, without its links to logs."""
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch, "report.html")
        command = [sys.executable, "-P", "-m", "bertbench", "report", "results", "--html", str(page)]
        subprocess.run(command, check=True, cwd=_REPOSITORY, stdout=subprocess.DEVNULL)
        return _LINK_TO_LOG.sub(r"\1", page.read_text(encoding="utf-8"))


def _sized(block: re.Match[str]) -> str:
    """Return a block of code, in a smaller font if it has long lines."""
    longest = max(map(len, block[1].splitlines()), default=0)
    return f"``` {{ .text .wide }}\n{block[1]}```" if longest > _LONGEST_LINE else block[0]
