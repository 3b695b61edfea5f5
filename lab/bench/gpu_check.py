"""Run `gpu_check.sh`: every check that needs a GPU, part by part, reported as one JSON file and one page.

It needs torch, numpy and pytest. Parts that the machine can't run are reported as skipped, so it ends on a CPU too.
"""

import argparse
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bertbench.common import children
from lab.bench.gpu.page import check_page
from lab.bench.gpu.parts import PARTS, Part

_MINUTES = 25.0
_LAST_LINES = 6  # lines of standard error kept as the reason for a failure
_OUT = Path("runs") / "gpu_check"


class Outcome(NamedTuple):
    """How a part ended."""

    name: str
    shows: str
    status: str
    """`passed`, `failed` or `skipped`."""
    seconds: float
    reason: str
    """The reason if it did not pass."""


def main(words: list[str]) -> int:
    """Run the parts; return 0 if none failed, 1 if one did, 2 if the check itself can't run."""
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser("gpu_check.sh", description=__doc__)
    parser.add_argument("--only", metavar="A,B", default=",".join(names), help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--minutes", type=float, default=_MINUTES, help="time limit for all parts (default 25)")
    parser.add_argument(
        "--out", type=Path, default=_OUT, metavar="FOLDER",
        help="folder for gpu_check.json and gpu_check.html (default runs/gpu_check)",
    )  # fmt: skip
    arguments, step_options = parser.parse_known_args(words)
    wanted = arguments.only.split(",")
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"unknown part {', '.join(unknown)}; choose of {', '.join(names)}")
    if missing := [name for name in ("numpy", "pytest") if importlib.util.find_spec(name) is None]:
        print(f"gpu_check: found no {' and no '.join(missing)}; install them, or set PYTHON", file=sys.stderr)
        return 2
    ends = time.monotonic() + 60 * arguments.minutes
    outcomes, found = [], dict[str, Any]()
    for part in PARTS:
        if part.name in wanted:
            chosen = part._replace(command=(*part.command, *step_options)) if part.name == "step" else part
            outcome, found[part.name] = run_part(chosen, torch.cuda.device_count(), ends - time.monotonic())
            outcomes.append(outcome)
            print(f"gpu_check: {outcome.name}: {outcome.status} {outcome.reason}".rstrip(), file=sys.stderr, flush=True)
    failed = any(outcome.status == "failed" for outcome in outcomes)
    report = {"machine": machine(), "passed": not failed, "parts": [one._asdict() for one in outcomes], **found}
    text = json.dumps(report, indent=2)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "gpu_check.json").write_text(text + "\n")
    (arguments.out / "gpu_check.html").write_text(check_page(report))
    print(text)
    return 1 if failed else 0


def machine() -> dict[str, Any]:
    """Return the machine that the check runs on."""
    return {
        "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def run_part(part: Part, gpus: int, seconds_left: float) -> tuple[Outcome, Any]:
    """Run one part in its own process; kill it with all its children at its time limit."""
    if gpus < part.gpus:
        reason = "needs a GPU" if part.gpus == 1 else f"needs {part.gpus} GPUs or more"
        return Outcome(part.name, part.shows, "skipped", 0.0, reason), f"skipped: {reason}"
    if seconds_left <= 0:
        reason = "no time left; choose fewer parts"
        return Outcome(part.name, part.shows, "skipped", 0.0, reason), f"skipped: {reason}"
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = part.command or ("lab.bench.gpu.parts", part.name)
        if part.command == ("pytest",):
            words = ("pytest", "-q", f"--junitxml={report}", "tests/gpu/test_gpu.py")
        code, output, errors = _run([sys.executable, "-m", *words], min(part.limit_s, seconds_left))
        answer = summary(report.read_text()) if report.exists() else _json(output)
    status, reason, found = _judged(part, code, answer, errors)
    return Outcome(part.name, part.shows, status, round(time.monotonic() - began, 1), reason), found


def _judged(part: Part, code: int | None, answer: Any, errors: str) -> tuple[str, str, Any]:
    """Return a part's status, the reason and its results."""
    if code is None:
        reason = f"exceeded its {part.limit_s} s, or the time left"
        return "failed", reason, {"error": reason, "last_lines": _last(errors)}
    if isinstance(answer, dict) and "skipped" in answer and part.function:
        return "skipped", answer["skipped"], f"skipped: {answer['skipped']}"
    if isinstance(answer, dict) and "failures" in answer:
        works = bool(answer["passed"]) and not answer["failed"]
        return ("passed" if works else "failed"), "; ".join(answer["failures"]), answer
    if code or answer is None:
        reason = f"ended with {code}" + "".join(f": {line}" for line in _last(errors)[-1:])
        return "failed", reason, {"error": reason, "last_lines": _last(errors)}
    if part.function:
        return ("passed" if answer["passed"] else "failed"), "" if answer["passed"] else "see its rows", answer["found"]
    return "passed", "", answer


def _run(command: Sequence[str], limit_s: float) -> tuple[int | None, str, str]:
    """Return the exit code (None after the time limit) and both outputs; standard error is shown as it comes."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    code: int | None = None
    try:
        output, errors = process.communicate(timeout=limit_s)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
    sys.stderr.write(errors)
    return code, output, errors


def _json(output: str) -> Any:
    try:
        return json.loads(output)
    except json.JSONDecodeError:
        return None


def _last(errors: str) -> list[str]:
    return [line for line in errors.splitlines() if line.strip()][-_LAST_LINES:]


def summary(junit: str) -> dict[str, Any]:
    """Return counts, the first line of each failure, and recorded properties of a JUnit report."""
    failures, measured, skipped, total = {}, {}, 0, 0
    for case in ET.fromstring(junit).iter("testcase"):
        total += 1
        skipped += case.find("skipped") is not None
        for kind in ("failure", "error"):
            if (found := case.find(kind)) is not None:
                failures[case.get("name")] = (found.get("message") or "").partition("\n")[0]
        if properties := {one.get("name"): one.get("value") for one in case.iter("property")}:
            measured[case.get("name")] = properties
    return {
        "passed": total - skipped - len(failures), "failed": len(failures), "skipped": skipped, "failures": failures,
        "measured": measured,
    }  # fmt: skip


if __name__ == "__main__":
    try:
        children.begin()
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt as interrupt:
        sys.exit(children.said(interrupt))
