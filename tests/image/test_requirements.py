"""An image installs on its base only the packages that the base lacks."""

import subprocess
import sys
from pathlib import Path

import pytest

from bertbench.common.paths import REPOSITORY


def installed_on(folder: Path, *interpreter: str) -> tuple[str, list[str], list[str]]:
    """Return the output of the script, the requirements, and the versions that pip may take."""
    script = REPOSITORY / "benchmarks/bert/launch/requirements.py"
    words = [*interpreter, str(script), str(REPOSITORY), str(folder)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return said, *((folder / f"{name}.txt").read_text().splitlines() for name in ("requirements", "constraints"))


def test_a_base_keeps_its_torch_and_numpy_and_an_empty_one_gets_ours(tmp_path: Path) -> None:
    _, requirements, constraints = installed_on(tmp_path, sys.executable)
    assert not any(line.startswith("torch") for line in requirements)
    assert not any(line.startswith(("numpy==", "torch==")) for line in constraints)
    bare = sys.executable, "-I", "-S"  # sees no packages
    _, requirements, constraints = installed_on(tmp_path, *bare)
    assert any(line.startswith("torch>") for line in requirements)
    assert any(line.startswith("numpy==") for line in constraints)


@pytest.mark.parametrize(
    ("version", "kept", "untested"),
    [("2.10.0", False, False), ("2.11.0a0+eb65b36914.nv26.02", True, False), ("2.15.0a0+1a2b3c", True, True)],
)
def test_a_bases_torch_is_replaced_if_too_old_and_named_if_untested(
    version: str, kept: bool, untested: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(f"__version__ = {version!r}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said, requirements, _ = installed_on(tmp_path, sys.executable, "-S")
    assert kept != any(line.startswith("torch>") for line in requirements)
    assert untested == ("untested" in said)
