"""What a run's record says of the code that made it."""

import subprocess
from pathlib import Path

import pytest

from bertbench.machine import provenance
from bertbench.machine.provenance import unchanged_commit

SOURCE = "benchmarks/bert/implementation/bertbench/a.py"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a committed source and README."""
    for name in (SOURCE, "README.md"):
        write(tmp_path / name)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "--message", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
    return tmp_path


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a = 1\n")


def test_a_report_and_a_system_file_of_the_user_do_not_change_the_code(checkout: Path) -> None:
    for name in ("report.html", "mine.json", "benchmarks/bert/slurm-1.out"):
        write(checkout / name)
    assert unchanged_commit() is not None


def test_a_changed_file_and_a_new_source_do(checkout: Path) -> None:
    new = checkout / SOURCE.replace("a.py", "b.py")
    write(new)
    assert unchanged_commit() is None
    new.unlink()
    (checkout / "README.md").write_text("b = 2\n")
    assert unchanged_commit() is None
