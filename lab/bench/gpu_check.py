"""Run `gpu_check.sh`: every check that needs a GPU, part by part, reported as one JSON file and one page.

It needs torch, numpy, h5py and pytest. The report is written after every result, so a kill loses none. On a machine
without a GPU each part runs in small, or up to the device, so the check ends there too.
"""

import argparse
import importlib.util
import shlex
import sys
import time
from pathlib import Path

import torch

from bertbench.common import children
from lab.bench.gpu.child import Ended, run
from lab.bench.gpu.parts import GROUPS, PARTS, Part
from lab.bench.gpu.report import Report


def main(words: list[str]) -> int:
    """Run the parts; return 0 if none failed, 1 if one did, 2 if the check itself can't run."""
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser("gpu_check.sh", description=__doc__)
    parser.add_argument(
        "--only", metavar="A,B", default=",".join(GROUPS),
        help=f"parts, or groups of them: {'; '.join(f'{group}: {_list(parts)}' for group, parts in GROUPS.items())} "
        "(default: all)",
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, default=40.0, help="time limit for all parts (default 40)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/gpu_check"), metavar="FOLDER",
        help="folder for gpu_check.json and gpu_check.html, which keep the parts of earlier commands "
        "(default runs/gpu_check)",
    )  # fmt: skip
    arguments, step_options = parser.parse_known_args(words)
    wanted = [name for word in arguments.only.split(",") for name in GROUPS.get(word, (word,))]
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"unknown part {_list(unknown)}; choose of {_list((*GROUPS, *names))}")
    if missing := [name for name in ("numpy", "h5py", "pytest") if importlib.util.find_spec(name) is None]:
        print(f"gpu_check: found no {' and no '.join(missing)}; install them, or set PYTHON", file=sys.stderr)
        return 2
    ends = time.monotonic() + 60 * arguments.minutes
    chosen = [part for part in PARTS if part.name in wanted]
    report = Report(arguments.out, chosen)
    try:
        for part in chosen:
            options = shlex.join(step_options) if part.name == "step" else ""
            ended = run_part(part._replace(command=f"{part.command} {options}"), report, ends - time.monotonic())
            print(f"gpu_check: {part.name}: {ended}", file=sys.stderr, flush=True)
        print(report.text())
    finally:
        print(f"gpu_check: {report.summary()}", file=sys.stderr, flush=True)
    return int(report.failed)


def _list(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names)


def run_part(part: Part, report: Report, seconds_left: float) -> str:
    """Run one part in its own process, killed with all its children at its time limit; return how it ended."""
    limit_s = min(part.limit_s, seconds_left)
    if torch.cuda.device_count() < part.gpus:
        return report.end(part, "not reached", f"needs {part.gpus} GPUs or more")
    if seconds_left <= 0:
        return report.end(part, "not reached", "no time left; choose fewer parts")
    began = time.monotonic()
    report.begin(part)
    ended = run([sys.executable, "-m", *shlex.split(part.command)], lambda line: report.take(part, line), limit_s)
    return report.end(part, *_judged(report, part, ended, limit_s), round(time.monotonic() - began, 1))


def _judged(report: Report, part: Part, ended: Ended, limit_s: float) -> tuple[str, str]:
    """Return a part's status and the reason for it."""
    rows, last = report.rows(part), f": {ended.last}" if ended.last else ""
    verdicts = [row["holds"] for row in rows if "holds" in row]
    if ended.code is None:
        return "failed", f"exceeded its {limit_s:.0f} s"
    if not torch.cuda.is_available() and ended.code == 2 and "found no GPU" in last:
        return "not reached", "needs a GPU"
    if ended.code and all(verdicts):
        return "failed", f"ended with {ended.code}{last}"
    if not verdicts:
        unfit = next((row["not_reached"] for row in rows if "not_reached" in row), None)
        return ("not reached", unfit) if unfit else ("failed", f"found nothing{last}")
    return ("held", "") if all(verdicts) else ("failed", report.broken(part))


if __name__ == "__main__":
    try:
        children.begin()
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt as interrupt:
        sys.exit(children.said(interrupt))
