"""What `gpu_check.sh` runs: the tests that need a GPU, then the benches, on a machine with little more than torch."""

import argparse
import importlib.util
import json
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

PARTS = ("tests", "step", "overlap")
_STEP = ("--device", "cuda", "--sizes", "base,large")


def main(words: list[str]) -> int:
    """Print what was found as JSON; 0 if all tests passed and all benches ran, 2 where no GPU can be checked."""
    parser = argparse.ArgumentParser("gpu_check.sh", description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="where time is short: this part only")
    arguments, step_options = parser.parse_known_args(words)
    if not torch.cuda.is_available():
        print(f"gpu_check: torch {torch.__version__} sees no GPU; run this on a machine with one", file=sys.stderr)
        return 2
    if missing := [name for name in ("numpy", "pytest") if importlib.util.find_spec(name) is None]:
        print(f"gpu_check: found no {' and no '.join(missing)}; install them, or set PYTHON", file=sys.stderr)
        return 2
    several = torch.cuda.device_count() > 1
    parts: dict[str, Callable[[], Any]] = {
        "tests": _tests,
        "step": lambda: _bench("step", *_STEP, *step_options),
        "overlap": lambda: _bench("overlap") if several else "skipped: needs two GPUs or more",
    }
    machine = {
        "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
    }
    found = {name: part() for name, part in parts.items() if arguments.only in (None, name)}
    print(json.dumps({"machine": machine, **found}, indent=2))
    tests = found.get("tests", {"passed": 1, "failed": 0})
    works = tests["passed"] and not tests["failed"] and not any(isinstance(part, _Broken) for part in found.values())
    return 0 if works else 1


class _Broken(dict[str, str]):
    """Why a bench gave no answer."""


def _tests() -> dict[str, Any]:
    """Run tests/gpu; its output goes to standard error. conftest.py needs pydantic, which these tests don't."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run(
            [sys.executable, "-m", "pytest", "--noconftest", "-q", f"--junitxml={report}", "tests/gpu"],
            stdout=sys.stderr, check=False,
        )  # fmt: skip
        return summary(report.read_text())


def summary(junit: str) -> dict[str, Any]:
    """Counts, and the first line of each failure, of a JUnit report."""
    failures, skipped, total = {}, 0, 0
    for case in ET.fromstring(junit).iter("testcase"):
        total += 1
        skipped += case.find("skipped") is not None
        for kind in ("failure", "error"):
            if (found := case.find(kind)) is not None:
                failures[case.get("name")] = (found.get("message") or "").partition("\n")[0]
    return {
        "passed": total - skipped - len(failures), "failed": len(failures), "skipped": skipped, "failures": failures
    }  # fmt: skip


def _bench(name: str, *options: str) -> Any:
    """What a bench prints; why it failed, if it did."""
    command = [sys.executable, "-m", "bertbench", "bench", name, "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return _Broken(error=f"`{' '.join(command[2:])}` ended with {done.returncode}")
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
