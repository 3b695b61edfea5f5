"""`python -m compliance PATH...`: a verdict per log; `python -m compliance package DIR`: one on a submission.

Exit code 0 all pass, 1 some fail, 2 some cannot be judged.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path

from compliance import official
from compliance.judge import Judgement, judge_path

# Each has `main(arguments) -> exit code`. A log of such a name is given as ./NAME.
_SUBCOMMANDS = {"package": "compliance.package"}
_EXIT_CODES = {"pass": 0, "fail": 1, "cannot-judge": 2}


def main(arguments: list[str] | None = None) -> int:
    """Judge the logs at the paths given, or a package; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in _SUBCOMMANDS:
        command = importlib.import_module(_SUBCOMMANDS[arguments[0]])
        return int(command.main(arguments[1:]))
    parser = argparse.ArgumentParser(
        prog="python -m compliance",
        description="Judge MLPerf Training logs of BERT. `python -m compliance package DIR` judges a whole submission.",
    )
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a log, or a folder with result_*.txt at any level"
    )
    rulesets = official.rulesets()
    parser.add_argument(
        "--ruleset", default=official.DEFAULT_RULESET, choices=rulesets, metavar="R",
        help=f"rules to judge by: {', '.join(rulesets)} (default {official.DEFAULT_RULESET})",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON array, an object a log")
    options = parser.parse_args(arguments)
    judgements = [judgement for path in options.paths for judgement in judge_path(path, options.ruleset)]
    if options.json:
        print(json.dumps([judgement.as_json() for judgement in judgements], indent=2))
    else:
        for judgement in judgements:
            print(_told(judgement))
    return max(_EXIT_CODES[judgement.verdict] for judgement in judgements)


def _told(judgement: Judgement) -> str:
    facts, verdict = judgement.facts, judgement.official
    head = f"{judgement.verdict.upper():<12} {judgement.path}"
    lines = []
    if facts is not None:
        time = "unknown" if facts.time_to_train_s is None else f"{facts.time_to_train_s:.1f} s"
        best = "none" if facts.best_accuracy is None else f"{facts.best_accuracy:.4f}"
        lines += [
            f"  {facts.benchmark}, {facts.division} division, ruleset {verdict.ruleset}: official {verdict.verdict}",
            f"  time to train {time}, best accuracy {best}, run {facts.status or 'unfinished'}",
        ]
    lines += [f"  {finding.rule}: {finding.found}" for finding in judgement.findings]
    return "\n".join([head, *lines])


if __name__ == "__main__":
    sys.exit(main())
