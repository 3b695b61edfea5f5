"""The first run compiles the CPU's loops, once per machine, even if that process dies or locks don't work."""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertbench.model import loops
from tests.ranks import CONTEXT, LIMIT_S


class Compiler:
    """A compiler that records each call and takes a moment; its result is a copy of our loops."""

    def __init__(self, folder: Path, first: str = "") -> None:
        found = loops.library()
        if isinstance(found, str):
            pytest.skip(found)
        self.cache, self._noted, self.path = folder / "cache", folder / "noted", folder / "my compiler"
        self.path.write_text(
            f"""#!/bin/sh
case "$*" in *" -o "*) ;; *) exec c++ "$@" ;; esac
echo x >>"{self._noted}"
if [ "$(wc -l <"{self._noted}")" = 1 ]; then :; {first} fi
sleep 0.3
for target; do :; done
exec cp "{found._name}" "$target"
"""
        )
        self.path.chmod(0o755)

    def compilations(self) -> int:
        return len(self._noted.read_text().split())

    def processes(self, count: int, *arguments: Any) -> list[int | None]:
        """Let processes request the loops at the same time; return their exit codes, which are 0 on success."""
        environment = {
            "XDG_CACHE_HOME": str(self.cache), "CXX": str(self.path), "TMPDIR": str(self.path.parent),
        }  # fmt: skip
        processes = [CONTEXT.Process(target=_ask, args=(environment, *arguments)) for _ in range(count)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(LIMIT_S)
        return sorted(process.exitcode or 0 for process in processes)


def _ask(environment: dict[str, str], prepare: Callable[[], None] | None = None) -> None:
    os.environ.update(environment)
    tempfile.tempdir = None  # the server's, from which this process was forked
    if prepare is not None:
        prepare()
    found = loops.library()
    if isinstance(found, str):
        raise SystemExit(found)


def without_locks() -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    fcntl.flock = refuse


def test_one_process_compiles_and_the_others_load_its_result(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path)
    assert compiler.processes(3) == [0, 0, 0]
    assert compiler.compilations() == 1
    (made,) = (compiler.cache / "bertbench").iterdir()
    assert made.suffix == ".so"


def test_if_the_process_that_compiles_is_killed_another_one_compiles(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path, first="kill -9 $PPID; exit 1;")
    assert compiler.processes(3) == [-9, 0, 0]
    assert compiler.compilations() == 2


def test_without_locks_every_process_compiles_and_none_waits(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path)
    assert compiler.processes(2, without_locks) == [0, 0]
    assert compiler.compilations() == 2


def test_a_cache_that_can_t_be_written_costs_a_compilation_not_the_loops(
    tmp_path: Path,
) -> None:
    compiler = Compiler(tmp_path)
    compiler.cache.write_text("a file, so that no folder can be made there")
    assert compiler.processes(1) == [0]
    assert compiler.compilations() == 1


@pytest.mark.parametrize("named", ["'{path}' -DNOTHING", "env NOTHING=1 '{path}'", ""])
def test_a_compiler_with_options_before_it_or_after_it_compiles(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = Compiler(tmp_path)
    monkeypatch.setenv("CXX", named.format(path=compiler.path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(compiler.cache))
    if not named:
        known = Path(str(loops.library()._name))  # type: ignore[union-attr]
        shutil.copytree(known.parent, compiler.cache / "bertbench")
    loops.library.cache_clear()
    try:
        assert not isinstance(found := loops.library(), str), found
    finally:
        loops.library.cache_clear()


@pytest.mark.parametrize(("named", "reason"), [("nosuch++", "nosuch++"), ("'g++", "No closing quotation")])
def test_a_compiler_that_can_t_be_called_is_named(named: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", named)
    loops.library.cache_clear()
    try:
        assert reason in str(loops.library())
        assert "slower" in loops.described()
    finally:
        loops.library.cache_clear()
