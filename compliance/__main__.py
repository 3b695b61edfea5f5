"""`python -m compliance PATH...`: judge each log; `python -m compliance package DIR`: judge a submission.

Exit code 0 all pass, 1 some fail, 2 some cannot be judged.
"""

import argparse
import io
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from compliance import alike, official, together
from compliance.finding import Finding, named
from compliance.judge import LOG_PATTERN, Judgement, Overall, find_logs, is_package, once
from compliance.log import CannotJudge
from compliance.record import as_json, printable
from compliance.streams import guarded, open_standard_streams

_EXIT_CODES: dict[Overall, int] = {"pass": 0, "fail": 1, "cannot-judge": 2}
_LOGS_A_PROCESS = 50  # of fewer, another process costs more than it saves


def main(arguments: list[str] | None = None) -> int:
    """Judge the logs at the given paths, or run a subcommand; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):  # an ASCII-only terminal shows other letters as escapes
        sys.stdout.reconfigure(errors="backslashreplace")
    named = arguments[:1] == ["package"]  # give a log of that name as ./package
    options = _parsed(arguments[named:])
    paths = options.paths
    if named or ([is_package(path) for path in paths] == [True] and not options.division):
        if options.division or len(paths) > 1:
            print("package: found --division or several folders; expected one package", file=sys.stderr)
            return 2
        return _package(paths[0], options)
    worst, contents, kinds = 0, [], defaultdict[str, list[str]](list)
    for folder, result in groupby(_judged(paths, options), key=lambda pair: pair[0].path.parent):
        whole, traces = zip(*result, strict=True)
        judgements, common = once(whole)
        common += _compared(whole, traces)
        worst = max(worst, options.strict and any(one.severity == "warning" for one in common))
        off = [one for one in judgements[0].not_applied if all(one in other.not_applied for other in judgements)]
        for index, (judgement, own) in enumerate(zip(whole, judgements, strict=True)):
            worst = max(worst, _EXIT_CODES[judgement.verdict])
            kinds[_kind(judgement)].append(str(judgement.path))
            if options.json:
                contents.append(own.as_json() | {"in_all_runs": [] if index else common})
            else:
                print("\n".join(map(printable, [*_head(judgement), *_lines(own, off)])))
        if not options.json:
            lines = [line for one in common for line in _text(str(folder), one)] + _not_applied(off)
            print("".join(f"{printable(line)}\n" for line in lines), end="")
    if options.json:
        print(as_json(contents))
    elif sum(map(len, kinds.values())) > 1:
        which = {kind: f": {', '.join(logs)}" * (kind != "pass") for kind, logs in kinds.items()}
        print(printable("; ".join(f"{len(kinds[kind])} {kind}{which[kind]}" for kind in sorted(kinds))))
    return worst


def _compared(runs: Sequence[Judgement], traces: Sequence[alike.Trace]) -> Iterator[Finding]:
    """Ask about runs of a folder that share a seed or measurements, or differ; only in a package, that decides."""
    if runs[0].path.match(LOG_PATTERN):
        for one in (*together.judge(runs[0].path.parent, False, runs[0].official.ruleset, runs), *alike.copies(traces)):
            yield replace(one, severity="warning", line=None)


def _package(root: Path, options: argparse.Namespace) -> int:
    from compliance import package  # noqa: PLC0415 - loads official tools that a log doesn't need

    try:
        judgement = package.judge_package(root, options.ruleset, options.strict)
    except CannotJudge as problem:
        print(printable(f"cannot judge: {problem}"), file=sys.stderr)
        if options.json:
            print(as_json({"path": str(root), "ruleset": options.ruleset, "verdict": "cannot-judge"}))
        return 2
    print(as_json(judgement.as_json()) if options.json else package.judgement_text(judgement))
    return _EXIT_CODES[judgement.verdict]


def _kind(judgement: Judgement) -> str:
    """Return a log's place in the summary: its verdict, or what the verdict leaves open."""
    if judgement.facts is not None and judgement.facts.not_a_result:
        return "no result"
    return "warn" if judgement.verdict == "pass" and judgement.findings else judgement.verdict


def _parsed(arguments: list[str]) -> argparse.Namespace:
    rulesets = official.rulesets()
    parser = argparse.ArgumentParser(
        prog="python -m compliance",
        description="Judge MLPerf Training logs of BERT, or a package. `bertbench compare A B` compares logs.",
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
    parser.add_argument("--strict", action="store_true", help="let warnings fail a log or a package")
    parser.add_argument("--json", action="store_true", help="print one JSON array with an object per log")
    return parser.parse_args(arguments)


def _judged(paths: Sequence[Path], options: argparse.Namespace) -> Iterator[tuple[Judgement, alike.Trace]]:
    jobs = [(log, options) for path in paths for log in _logs(path)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = min(cores, len(jobs) // _LOGS_A_PROCESS)
    if processes < 2:
        yield from map(_job, jobs)
        return
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - costs 20 ms, which ten logs don't need

    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_job, jobs, chunksize=16)


def _logs(path: Path) -> list[Path]:
    try:
        return find_logs(path)
    except CannotJudge:
        return [path]  # judging it reports the reason


def _job(job: tuple[Path, argparse.Namespace]) -> tuple[Judgement, alike.Trace]:
    path, options = job
    return together.judged(path, path.name, options.ruleset, options.division, options.strict)


def _head(judgement: Judgement) -> list[str]:
    facts, verdict = judgement.facts, judgement.official
    kind = _kind(judgement)  # a run of --smoke or --profile is no result, however it ends
    lines = [f"{(judgement.verdict if kind == 'warn' else kind).upper():<12} {judgement.path}"]
    if facts is not None:
        time = "unknown" if facts.time_to_train_s is None else f"{facts.time_to_train_s:.1f} s"
        best = "none" if facts.best_accuracy is None else f"{facts.best_accuracy:.4f}"
        lines += [
            f"  {facts.benchmark}, {facts.division} division, ruleset {verdict.ruleset}: official {verdict.verdict}",
            f"  time to train {time}, best accuracy {best}, run {facts.status or 'unfinished'}",
        ]
    return lines


def _lines(judgement: Judgement, off: Sequence[tuple[str, str]]) -> list[str]:
    found = [*judgement.findings, *judgement.notes]
    lines = [line for finding in found for line in _text(str(judgement.path), finding)]
    return lines + _not_applied([one for one in judgement.not_applied if one not in off])


def _not_applied(rules: Sequence[tuple[str, str]]) -> list[str]:
    return [f"  not applied: {rule}: {reason}" for rule, reason in rules]


def _text(where: str, finding: Finding) -> list[str]:
    where = where if finding.line is None else f"{where}:{finding.line}"
    return [
        f"  {where}: {named(finding.severity)} {finding.rule}: found {finding.found}",
        f"    expected: {finding.expected}; remedy: {finding.remedy}",
    ]


if __name__ == "__main__":
    open_standard_streams()
    sys.exit(guarded("compliance", main))
