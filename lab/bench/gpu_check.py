"""Run `gpu_check.sh`: every check that needs a GPU, part by part, with a report as a JSON file.

It needs torch, numpy, h5py and pytest. The report is written after every result, so no result is lost if the check is
killed. Without a GPU, each part runs at a small size, or until it needs the GPU, so that the check ends there too.
"""

import argparse
import shlex
import sys
import time
from pathlib import Path

import torch

from bertbench.common import children
from lab.bench.gpu.child import CommandEnd, run_within
from lab.bench.gpu.parts import GROUPS, PARTS, CheckPart
from lab.bench.gpu.report import Report

_NO_GPU = "found no GPU"
"""The last line of a command contains this on a machine without a GPU."""


def main(words: list[str]) -> int:
    """Run the parts; return 0 if none failed, 1 if one did."""
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser("gpu_check.sh", description=__doc__)
    parser.add_argument(
        "--only", metavar="A,B", default=",".join(GROUPS),
        help=f"parts, or groups of parts: {'; '.join(f'{group}: {_list(parts)}' for group, parts in GROUPS.items())} "
        "(default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("runs/gpu_check"), metavar="FOLDER",
        help="folder for gpu_check.json, which keeps the results of earlier commands "
        "(default runs/gpu_check)",
    )  # fmt: skip
    arguments = parser.parse_args(words)
    wanted = [name for word in arguments.only.split(",") for name in GROUPS.get(word, (word,))]
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"unknown part {_list(unknown)}; choose from {_list((*GROUPS, *names))}")
    chosen = [part for part in PARTS if part.name in wanted]
    report = Report(arguments.out, chosen)
    print(f"gpu_check: each result is written at once to {report.path}", file=sys.stderr, flush=True)
    try:
        for part in chosen:
            print(f"gpu_check: {part.name}: {run_part(part, report)}", file=sys.stderr, flush=True)
        print(report.text())
    finally:
        print(f"gpu_check: {report.summary()}", file=sys.stderr, flush=True)
    return int(report.failed)


def _list(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names)


def run_part(part: CheckPart, report: Report) -> str:
    """Run one part in its own process, and kill it with all its children at its time limit; return how it ended."""
    began = time.monotonic()
    report.begin(part)
    ended = run_within(
        [sys.executable, "-m", *shlex.split(part.command)], lambda line: report.take(part, line), part.limit_s
    )
    return report.end(part, *_judged(report, part, ended), round(time.monotonic() - began, 1))


def _judged(report: Report, part: CheckPart, ended: CommandEnd) -> tuple[str, str]:
    """Return the status of a part and the reason for it."""
    rows, last = report.rows(part), f": {ended.last}" if ended.last else ""
    verdicts = [row["holds"] for row in rows if "holds" in row]
    if ended.code is None:
        return "failed", f"exceeded its limit of {part.limit_s} s"
    if not torch.cuda.is_available() and ended.code == 2 and _NO_GPU in last:
        return "not reached", "needs a GPU"
    if ended.code and all(verdicts):
        return "failed", f"ended with {ended.code}{last}"
    if not verdicts:
        unfit = next((row["not_reached"] for row in rows if "not_reached" in row), None)
        return ("not reached", unfit) if unfit else ("failed", f"gave no result{last}")
    return ("held", "") if all(verdicts) else ("failed", report.broken(part))


if __name__ == "__main__":
    try:
        children.begin()
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt as interrupt:
        sys.exit(children.report_signal(interrupt))
