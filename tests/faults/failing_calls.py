"""Call commands while a system call fails for some files, as with a broken disk, a lost mount or a limit."""

import errno
import json
import os
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

LIMIT_S = 300


class Case(NamedTuple):
    """A command, and the system call that fails during it."""

    words: list[str]
    call: str
    """open, read, write, mmap or flock."""
    ending: str
    """Of the files that it fails for."""
    number: int
    """The error number that it fails with."""

    def __str__(self) -> str:
        return f"{self.call} of {self.ending} fails with {errno.errorcode[self.number]}: {' '.join(self.words)}"


class Ended(NamedTuple):
    """The end of a command."""

    code: int
    text: str
    """What it printed, on both streams."""


def library(folder: Path) -> Path:
    """Make the library to preload; without Linux and a compiler, the test is skipped."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("failing system calls need Linux and a C compiler")
    made = folder / "failing_calls.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


def called(cases: list[Case], folder: Path, **environment: str) -> list[Ended]:
    """Call the commands in turn in a separate process, which `library` may refuse."""
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(cases),
        cwd=Path(__file__).parents[2],
        env={**os.environ, "LD_PRELOAD": str(library(folder)), **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Ended(*ended) for ended in json.loads(done.stdout)]


def _call(case: Case) -> Ended:
    from bertbench.cli.main import main  # noqa: PLC0415 - in the process that calls commands

    printed = StringIO()
    fault = {"FAULT_CALL": case.call, "FAULT_PATH": case.ending, "FAULT_ERRNO": str(case.number)}
    with redirect_stdout(printed), redirect_stderr(printed):
        os.environ.update(fault)
        code = main(case.words)
        del os.environ["FAULT_CALL"]
    return Ended(code, printed.getvalue())


if __name__ == "__main__":
    print(json.dumps([_call(Case(*case)) for case in json.load(sys.stdin)]))
