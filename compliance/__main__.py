"""`python -m compliance PATH...`: judge each log; `python -m compliance package DIR`: judge a submission.

Exit code 0 all pass, 1 some fail, 2 some cannot be judged.
"""

import argparse
import importlib
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compliance import official
from compliance.judge import Judgement, Overall, find_logs, judge_path
from compliance.log import CannotJudge
from compliance.record import printable

_EXIT_CODES: dict[Overall, int] = {"pass": 0, "fail": 1, "cannot-judge": 2}
# Each module has `main(arguments) -> exit code`. Give a log of such a name as ./NAME.
_SUBCOMMANDS = {"diff": "compliance.diff", "package": "compliance.package"}
# Below this a second process costs more than it saves.
_FEWEST_FOR_PROCESSES = 100


class _Options(NamedTuple):
    ruleset: str
    division: str | None
    strict: bool
    as_json: bool


class _Answer(NamedTuple):
    """A judgement in printed form: small enough to send between processes."""

    verdict: Overall
    text: str
    content: dict[str, Any] | None


def main(arguments: list[str] | None = None) -> int:
    """Judge the logs at the given paths, or run a subcommand; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):  # an ASCII-only terminal shows other letters as escapes
        sys.stdout.reconfigure(errors="backslashreplace")
    if arguments and arguments[0] in _SUBCOMMANDS:
        command = importlib.import_module(_SUBCOMMANDS[arguments[0]])
        return int(command.main(arguments[1:]))
    paths, options = _parsed(arguments)
    worst, contents = 0, []
    for answer in _judged(paths, options):
        worst = max(worst, _EXIT_CODES[answer.verdict])
        if answer.content is None:
            print(answer.text)
        else:
            contents.append(answer.content)
    if options.as_json:
        print(json.dumps(contents, indent=2))
    return worst


def _parsed(arguments: list[str]) -> tuple[list[Path], _Options]:
    rulesets = official.rulesets()
    parser = argparse.ArgumentParser(
        prog="python -m compliance",
        description="Judge MLPerf Training logs of BERT. `python -m compliance diff A B` compares two, "
        "`python -m compliance package DIR` judges a whole submission.",
    )
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH",
        help="a log, a folder with result_*.txt at any level, or - for standard input",
    )  # fmt: skip
    parser.add_argument(
        "--ruleset", default=official.DEFAULT_RULESET, choices=rulesets, metavar="R",
        help=f"rules to judge by: {', '.join(rulesets)} (default {official.DEFAULT_RULESET})",
    )  # fmt: skip
    parser.add_argument("--division", choices=("closed", "open"), help="division that the logs must have")
    parser.add_argument("--strict", action="store_true", help="let warnings fail a log")
    parser.add_argument("--json", action="store_true", help="print one JSON array with an object per log")
    given = parser.parse_args(arguments)
    return given.paths, _Options(given.ruleset, given.division, given.strict, given.json)


def _judged(paths: Sequence[Path], options: _Options) -> Iterator[_Answer]:
    jobs = [(log, options) for path in paths for log in _logs(path)]
    processes = min(_cores(), len(jobs) // (_FEWEST_FOR_PROCESSES // 2))
    if len(jobs) < _FEWEST_FOR_PROCESSES or processes < 2:
        for job in jobs:
            yield from _job(job)
        return
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - costs 20 ms, which ten logs don't need

    with ProcessPoolExecutor(processes) as pool:
        for answer in pool.map(_job, jobs, chunksize=16):
            yield from answer


def _logs(path: Path) -> list[Path]:
    try:
        return find_logs(path)
    except CannotJudge:
        return [path]  # judging it reports the reason


def _job(job: tuple[Path, _Options]) -> list[_Answer]:
    path, options = job
    judgements = judge_path(path, options.ruleset, options.division, options.strict)
    if options.as_json:
        return [_Answer(judgement.verdict, "", judgement.as_json()) for judgement in judgements]
    return [_Answer(judgement.verdict, _text(judgement), None) for judgement in judgements]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _text(judgement: Judgement) -> str:
    facts, verdict, path = judgement.facts, judgement.official, printable(str(judgement.path))
    lines = [f"{judgement.verdict.upper():<12} {path}"]
    if facts is not None:
        time = "unknown" if facts.time_to_train_s is None else f"{facts.time_to_train_s:.1f} s"
        best = "none" if facts.best_accuracy is None else f"{facts.best_accuracy:.4f}"
        lines += [
            f"  {facts.benchmark}, {facts.division} division, ruleset {verdict.ruleset}: official {verdict.verdict}",
            f"  time to train {time}, best accuracy {best}, run {facts.status or 'unfinished'}",
        ]
    for finding in (*judgement.findings, *judgement.notes):
        where = path if finding.line is None else f"{path}:{finding.line}"
        lines += [
            f"  {where}: {finding.severity} {finding.rule}: found {finding.found}",
            f"    expected: {finding.expected}; remedy: {finding.remedy}",
        ]
    return "\n".join([lines[0], *map(printable, lines[1:])])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
