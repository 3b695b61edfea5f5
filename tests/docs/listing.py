"""Find the commands and the outputs that pages show."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SETTING = re.compile(r"[A-Z_]+=\S*$")
_PROGRAMS = (
    "bertbench", "python", "make", "docker", "torchrun", "srun", "pip", "source", "export", "mkdir", "cd", "bash",
    "./run_and_time.sh",
)  # fmt: skip


class Command(NamedTuple):
    """A command of a fenced block: the words without comment and variables, and the output shown below."""

    words: tuple[str, ...]
    output: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return " ".join(self.words)


def commands(page: Path) -> list[Command]:
    """Return the commands of a page's fenced blocks; a block of output that begins with `$ ` has one."""
    blocks = _BLOCK.findall(page.read_text())
    return [command for block in blocks for command in _commands(block)]


def _commands(block: str) -> Iterator[Command]:
    lines, output = block.replace("\\\n", " ").splitlines(), ()
    if lines and lines[0].startswith("$ "):
        lines, output = [lines[0].removeprefix("$ ")], tuple(line for line in lines[1:] if line.strip() != "...")
    for line in lines:
        program = next((word for word in line.split() if not _SETTING.match(word)), "")
        if program in _PROGRAMS:
            words = shlex.split(line, comments=True)
            yield Command(tuple(words[words.index(program) :]), output)
