"""Keep the tables that pages show of results/bench/ as they were recorded.

A line `<!-- results/bench/... -->` before a fenced block names the record whose command and printed table the block
shows; after a colon, the heading of the only table to show. `python docs/site/shown.py` rewrites the blocks; a test
finds those that differ.
"""

import json
import re
from pathlib import Path

_REPOSITORY = Path(__file__).parents[2]
_SHOWN = re.compile(r"(<!-- (results/bench/\S+?)(?:: (.+?))? -->\n```\n).*?(^```$)", re.MULTILINE | re.DOTALL)


def current(page: str) -> str:
    """Return a page with every such block as its record has it."""

    def block(found: re.Match[str]) -> str:
        record = json.loads((_REPOSITORY / found[2]).read_text())
        head, *tables = "\n".join(record["printed"]).split("\n\n")
        command = record["command"].replace("bertbench bench ", "bertbench lab ")  # its name when it was recorded
        tables = [table for table in tables if found[3] is None or table.startswith(found[3])]
        return found[1] + "\n\n".join([f"$ {command}\n{head}", *tables]) + "\n" + found[4]

    return _SHOWN.sub(block, page)


def pages() -> list[Path]:
    """Return the pages that may show records."""
    return [_REPOSITORY / "README.md", *sorted((_REPOSITORY / "docs").glob("*.md"))]


if __name__ == "__main__":
    for path in pages():
        text = path.read_text()
        if (fresh := current(text)) != text:
            path.write_text(fresh)
