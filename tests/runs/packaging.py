"""Build packages and look into them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def words(out: Path, results: Path, system: str = "cpu_demo") -> list[str]:
    return [
        "package",
        "--out",
        str(out),
        "--submitter",
        "bertbench",
        "--results",
        str(results),
        "--allow-dirty",
        system,
    ]


def content(path: Path) -> Any:
    return json.loads(path.read_text())


def official(tool: str, package: Path) -> str:
    """Return the output of an official tool that must pass; it may write files next to the package."""
    command = [sys.executable, "-m", f"mlperf_logging.{tool}", str(package), "training", "5.0.0"]
    return subprocess.run(command, cwd=package.parent, capture_output=True, text=True, check=True).stderr
