"""Write what pages show of the records in results/ and of the judge's rules.

A line `<!-- shown: SOURCE -->` stands before a fenced block, or before lines up to the next blank one. SOURCE is a
record of results/bench/ (a pattern means the newest), a command of bertbench or the judge, of whose output ` ... 5`
takes the last five lines, `first run: COMMAND` for what a command printed in results/first_run.json, or a name of
readings.py.
`python docs/site/shown.py` rewrites the blocks, `python docs/site/picture.py` the picture; a test finds old ones.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

_REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(_REPOSITORY))  # neither lab/ nor this folder is installed

from docs.site.readings import READINGS, first_run  # noqa: E402
from docs.site.tables import command_of, fenced  # noqa: E402

_SHOWN = re.compile(r"(<!-- shown: (.+?) -->\n+)(```\n.*?^```$|.+?(?=\n\n|\n*\Z))", re.MULTILINE | re.DOTALL)


def current(page: str) -> str:
    """Return a page with every such block as the records have it."""
    return _SHOWN.sub(lambda found: found[1] + _block(found[2]), page)


def pages() -> list[Path]:
    """Return the pages that may show records."""
    folders = (_REPOSITORY / "docs", _REPOSITORY / "results", _REPOSITORY / "compliance")
    return [_REPOSITORY / "README.md", *(page for folder in folders for page in sorted(folder.glob("*.md")))]


def _block(source: str) -> str:
    if source.startswith("results/bench/"):
        records = (json.loads(path.read_text()) for path in _REPOSITORY.glob(source))
        record = max(records, key=lambda record: record["measured"])
        made = f"{record['measured']}, commit {record['commit'][:7]}, torch {record['torch']}"
        return fenced(f"$ {command_of(record)}    # {made}", *record["printed"])
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
