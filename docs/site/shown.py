"""Write the parts of pages that show records in results/ or the output of commands.

A line `<!-- shown: SOURCE -->` comes before a fenced block, or before lines up to the next blank one. SOURCE is one of:

- a command of bertbench or the judge; ` ... 5` after it takes the last five lines of the output
- `first run: COMMAND`, for the output of a command that is recorded in results/first_run.json
- a name from readings.py

`python docs/site/shown.py` rewrites the blocks, and a test finds blocks that are out of date.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

_REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(_REPOSITORY))  # because lab/ and this folder aren't installed

from docs.site.readings import READINGS, fenced, first_run  # noqa: E402

_SHOWN = re.compile(r"(<!-- shown: (.+?) -->\n+)(```\n.*?^```$|.+?(?=\n\n|\n*\Z))", re.MULTILINE | re.DOTALL)


def current(page: str) -> str:
    """Return a page with every such block brought up to date."""
    return _SHOWN.sub(lambda found: found[1] + _block(found[2]), page)


def pages() -> list[Path]:
    """Return the pages that may have such blocks."""
    folders = (_REPOSITORY / "docs", _REPOSITORY / "results", _REPOSITORY / "compliance")
    return [_REPOSITORY / "README.md", *(page for folder in folders for page in sorted(folder.glob("*.md")))]


def _block(source: str) -> str:
    if source.startswith("first run: "):
        command = source.removeprefix("first run: ")
        return fenced(f"$ {command}", *first_run()["printed"][command])
    if source.startswith(("bertbench ", "python ")):
        command, _, last = source.partition(" ... ")
        lines = _printed(command).splitlines()
        if last:
            lines = ["...", *lines[-int(last) :]]
        return fenced(f"$ {command}", *lines)
    return READINGS[source]()


def _printed(command: str) -> str:
    words = [sys.executable, "-m", *command.removeprefix("python -m ").split()]
    done = subprocess.run(words, cwd=_REPOSITORY, env={**os.environ, "COLUMNS": "120"}, capture_output=True, text=True)  # noqa: PLW1510 - the judge's code is its verdict
    if not done.stdout:
        raise SystemExit(f"{command}: printed nothing\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    for path in pages():
        text = path.read_text()
        if (fresh := current(text)) != text:
            path.write_text(fresh)
