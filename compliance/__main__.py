"""`python -m compliance PATH...`: judge each log; `python -m compliance package DIR`: judge a submission.

`python -m compliance rules`: list the rules, the values that the closed division fixes, and the questions.
The exit code is 0 if all logs pass, 1 if some fail, and 2 if some cannot be judged or the arguments are wrong.
"""

import argparse
import io
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NoReturn


def _name_missing_package(problem: ModuleNotFoundError) -> int:
    """Say how to install a package that the judge needs; return the exit code."""
    print(f"python -m compliance: {problem.name} is missing; run pip install ./compliance", file=sys.stderr)
    return 2


try:
    from compliance import text
    from compliance.ask import TOPICS
    from compliance.judge import Judgement, Overall, judge_log, runs_compared
    from compliance.official import DEFAULT_RULESET
    from compliance.official.ruleset import accepted_rulesets, refused_ruleset
    from compliance.read.find import LOG_PATTERN, find_logs, is_package, other_logs
    from compliance.read.record import answer_json, error_json, printable
    from compliance.read.source import STDIN, CannotJudge
    from compliance.rules import RULES
    from compliance.rules.fixed_values import FIXED
    from compliance.rules.rule import Unchecked
    from compliance.streams import guarded, open_standard_streams
except ModuleNotFoundError as problem:
    if __name__ != "__main__":
        raise
    sys.exit(_name_missing_package(problem))

_COMMAND = "judge"
"""Name of this program in --json output, under whichever name it was started."""
_FIELDS = """\
fields of --json, for each log:
  command          always judge
  path             path of the log
  verdict          pass, fail or cannot-judge; a log that the text calls
                   NO RESULT has fail
  official         ruleset, and verdict of MLCommons' checker: pass, fail or
                   error, if it crashes or couldn't be run
  benchmark        bert; null if the log names none
  division         closed or open, or null
  time_to_train_s  seconds from run_start to run_stop, or null
  best_accuracy    highest accuracy, 0 to 1, or null
  findings         list of breaches: rule, line, found, expected, document,
                   section, rounds, remedy
  questions        list of what a reviewer might ask: question, line,
                   figure, usual
  not_applied      list of rules that weren't applied: rule, reason,
                   missing_evidence (if true, --strict fails the log)
  hint             the ruleset that fits better, or null

A package has command, path, ruleset, verdict, findings, questions,
not_applied and results. A package that can't be judged has only command,
path, ruleset and verdict.

Each result has system, benchmark, division, time_to_train_s, energy_j (in
joules, or null), convergence (the official verdict on the samples to
converge, or null), failed_run (the only run that failed, or null),
findings, not_applied and logs, which has an object for each log."""
_EXIT_CODES: dict[Overall, int] = {"pass": 0, "fail": 1, "cannot-judge": 2}
_LOGS_A_PROCESS = 50
"""With fewer logs, another process takes more time than it saves."""


class _Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, and with --json as an object, too."""

    asks_for_json = False

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and exit with 2."""
        line = printable(f"{self.prog}: {message}")
        if self.asks_for_json:
            print(error_json(_COMMAND, line, 2))
        self.exit(2, f"{line}\n")


def main(arguments: list[str] | None = None, program: str = "python -m compliance") -> int:
    """Judge the logs at the given paths, or run a subcommand; return the exit code. `program` is its name in help."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that knows only ASCII shows other letters as escapes
        sys.stdout.reconfigure(errors="backslashreplace")
    if arguments[:1] == ["rules"]:  # a log of this name can be given as ./rules
        return _list_rules(arguments[1:], program)
    if arguments[:1] == ["package"]:
        options = _parsed(arguments[1:], package_parser(program))
        return _package(options.package, options)
    options = _parsed(arguments, argument_parser(program))
    paths = options.paths
    if len(paths) == 1 and is_package(paths[0]) and not options.division:
        return _package(paths[0], options)
    missing = [path for path in paths if _is_missing(path)]
    if missing:
        names = ", ".join(map(str, missing))
        message = f"{names}: no such file or folder; give a log, a folder of logs, a package, or - for standard input"
        print(printable(message), file=sys.stderr)
        if not options.json:
            options.paths = [path for path in paths if path not in missing]
    code = _logs(options)
    _name_other_logs(options.paths)
    return 2 if missing else code


def _is_missing(path: Path) -> bool:
    try:
        find_logs(path)
    except CannotJudge:
        return path != STDIN and not os.path.lexists(path)
    except ValueError:
        return False  # judging it reports the reason
    return False


def _logs(options: argparse.Namespace) -> int:
    worst = 0
    judgements: list[Judgement] = []
    for _, folder in groupby(_judged(options.paths, options), key=lambda judgement: judgement.path.parent):
        of_folder = runs_compared(folder, options.strict)
        judgements += of_folder
        said_of_all = _said_of_all(of_folder)
        for judgement in of_folder:
            worst = max(worst, _EXIT_CODES[judgement.verdict])
            if not options.json:
                print(text.printed(text.of_log(judgement, options.strict, said_of_all)))
        if said_of_all and not options.json:
            logs_judged = len(_with_facts(of_folder))
            print(text.printed(text.of_all_logs(said_of_all, options.strict, logs_judged, len(of_folder))))
    if options.json:
        print(answer_json(_COMMAND, [judgement.as_json() for judgement in judgements]))
    elif (last := text.summary_line(judgements)) is not None:
        print(printable(last))
    return worst


def _name_other_logs(paths: Sequence[Path]) -> None:
    """Name the logs in folders that weren't judged because of their names."""
    others = [str(log) for path in paths for log in other_logs(path) if log not in paths]
    if others:
        line = f"not judged: {text.shortened(others)} (in a folder, only {LOG_PATTERN} are)"
        print(printable(line), file=sys.stderr)


def _said_of_all(judgements: Sequence[Judgement]) -> list[Unchecked]:
    """Return what couldn't be checked in any of several logs: it is printed once, after all logs of the folder."""
    judged = _with_facts(judgements)
    if len(judged) < 2:
        return []
    common = set.intersection(*(set(judgement.not_applied) for judgement in judged))
    return [unchecked for unchecked in judged[0].not_applied if unchecked in common]


def _with_facts(judgements: Sequence[Judgement]) -> list[Judgement]:
    """Return the judgements of files that are logs."""
    return [judgement for judgement in judgements if judgement.facts is not None]


def _package(root: Path, options: argparse.Namespace) -> int:
    from compliance.package.package import judge_package  # noqa: PLC0415 - imports official tools; logs don't need them

    try:
        judgement = judge_package(root, options.ruleset, options.strict)
    except CannotJudge as problem:
        print(printable(f"cannot judge: {problem}"), file=sys.stderr)
        if options.json:
            by_ruleset = options.ruleset or DEFAULT_RULESET
            content = {"path": str(root), "ruleset": by_ruleset, "verdict": "cannot-judge"}
            print(answer_json(_COMMAND, content))
        return 2
    print(answer_json(_COMMAND, judgement.as_json()) if options.json else text.of_package(judgement))
    return _EXIT_CODES[judgement.verdict]


def _list_rules(arguments: list[str], program: str) -> int:
    description = (
        "List the rules, which decide the verdict, the values that the closed division fixes, and the questions, which "
        "don't decide it."
    )
    parser = _Parser(prog=f"{program} rules", description=description)
    parser.add_argument("--json", action="store_true", help="print a JSON object with all three lists")
    parser.asks_for_json = "--json" in arguments
    if parser.parse_args(arguments).json:
        content = {
            "rules": [rule.as_json() for rule in RULES],
            "fixed_values": [fixed.as_json() for fixed in FIXED],
            "questions": [topic.as_json() for topic in TOPICS],
        }
        print(answer_json(_COMMAND, content))
        return 0
    lines = [*text.rules_table(RULES), "Fixed values, which the rule reference-value compares"]
    lines += [f'  {fixed.key}: {fixed.expected} ("{fixed.section}")' for fixed in FIXED]
    lines.append("Questions, which never change a verdict")
    for topic in TOPICS:
        lines += [f"  {topic.id}: {topic.asks}", f"    usual: {topic.usual}"]
    print(text.printed(lines))
    return 0


def _ruleset(word: str) -> str:
    if word in accepted_rulesets():
        return word
    raise argparse.ArgumentTypeError(refused_ruleset(word))


def _parsed(arguments: list[str], parser: _Parser) -> argparse.Namespace:
    parser.asks_for_json = "--json" in arguments
    return parser.parse_args(arguments)


def argument_parser(program: str) -> _Parser:
    """Return the parser of the judge's arguments; `program` is its name in help."""
    parser = _Parser(
        prog=program,
        description="Check whether MLPerf Training logs of BERT, or a submission package, follow MLPerf's rules.",
        epilog=f"`{program} rules` lists the rules, which decide the verdict, the values that\n"
        f"the closed division fixes, and the questions, which don't decide the verdict.\n"
        f"`{program} package DIR` judges a package.\n"
        f"To compare two logs, use `bertbench compare A B`.\n\n{_FIELDS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH",
        help="a log, a folder with result_*.txt at any level, a package, or - for standard input",
    )  # fmt: skip
    _add_ruleset(parser)
    parser.add_argument("--division", choices=("closed", "open"), help="division that the logs must be in")
    _add_strict_and_json(parser, "print JSON: an array with an object per log, or one object for a package")
    return parser


def package_parser(program: str) -> _Parser:
    """Return the parser of the arguments after `package`; `program` is the judge's name in help."""
    parser = _Parser(
        prog=f"{program} package", description="Check whether a submission package follows MLPerf's rules."
    )
    parser.add_argument(
        "package", type=Path, metavar="DIR", help="the submitter's folder, with systems/, benchmarks/ and results/"
    )
    _add_ruleset(parser)
    _add_strict_and_json(parser, f"print a JSON object; `{program} --help` lists its fields")
    return parser


def _add_ruleset(parser: _Parser) -> None:
    parser.add_argument(
        "--ruleset", type=_ruleset, metavar="R",
        help=f"round of the rules to judge by: {', '.join(accepted_rulesets())} (default: the round that the log or "
        f"the package indicates, otherwise {DEFAULT_RULESET})",
    )  # fmt: skip


def _add_strict_and_json(parser: _Parser, json_help: str) -> None:
    parser.add_argument(
        "--strict", action="store_true", help="also fail a log or package that lacks evidence that the rules ask for"
    )
    parser.add_argument("--json", action="store_true", help=json_help)


def _judged(paths: Sequence[Path], options: argparse.Namespace) -> Iterator[Judgement]:
    jobs = [(log, options) for path in paths for log in _logs_at(path)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = min(cores, len(jobs) // _LOGS_A_PROCESS)
    if processes < 2:
        yield from map(_job, jobs)
        return
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - takes 20 ms, and ten logs don't need it

    with ProcessPoolExecutor(processes, initializer=_end_with_parent) as pool:
        yield from pool.map(_job, jobs, chunksize=16)


def _end_with_parent() -> None:
    """Let this process end when the one that started it does, even if that one is killed."""
    from multiprocessing import parent_process  # noqa: PLC0415 - loaded with the pool
    from threading import Thread  # noqa: PLC0415

    parent = parent_process()
    assert parent is not None, "a pool has started this process"

    def wait_and_end() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait_and_end, daemon=True).start()


def _logs_at(path: Path) -> list[Path]:
    try:
        return find_logs(path)
    except CannotJudge:
        return [path]  # judging it reports the reason


def _job(job: tuple[Path, argparse.Namespace]) -> Judgement:
    path, options = job
    return judge_log(path, options.ruleset, options.division, options.strict).kept()


def _main() -> int:
    try:
        return main()
    except ModuleNotFoundError as problem:  # mlperf-logging is looked for only when it is used
        return _name_missing_package(problem)


if __name__ == "__main__":
    open_standard_streams()
    sys.exit(guarded("compliance", _main))
