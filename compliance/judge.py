"""Find logs, judge each, keep a verdict per log."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from compliance import official
from compliance.log import CannotJudge, read_events
from compliance.run import RunFacts

LOG_PATTERN = "result_*.txt"


@dataclass(frozen=True)
class Finding:
    """Something wrong in a log; `line` counts from 1, None where no line is to blame."""

    rule: str
    severity: Literal["error", "warning"]
    line: int | None
    found: str
    expected: str
    remedy: str


@dataclass(frozen=True)
class Judgement:
    """The verdict on one log; `facts` is None where it could not be judged."""

    path: Path
    verdict: Literal["pass", "fail", "cannot-judge"]
    official: official.OfficialVerdict
    facts: RunFacts | None
    findings: tuple[Finding, ...]

    def as_json(self) -> dict[str, Any]:
        """The fields that `--json` prints."""
        return {
            "path": str(self.path),
            "verdict": self.verdict,
            "official": {"ruleset": self.official.ruleset, "verdict": self.official.verdict},
            "benchmark": self.facts and self.facts.benchmark,
            "division": self.facts and self.facts.division,
            "time_to_train_s": self.facts and self.facts.time_to_train_s,
            "best_accuracy": self.facts and self.facts.best_accuracy,
            "findings": [vars(finding) for finding in self.findings],
        }


def find_logs(path: Path) -> list[Path]:
    """The path itself, or all logs in a folder: files named result_*.txt, at any level.

    Raises CannotJudge if there is nothing at the path, or no log in the folder.
    """
    if not path.exists():
        raise CannotJudge(f"{path}: found nothing there; give a log or a folder of logs")
    if not path.is_dir():
        return [path]
    logs = sorted(path.rglob(LOG_PATTERN), key=lambda log: (log.parent, len(log.name), log.name))
    if not logs:
        raise CannotJudge(f"{path}: found no {LOG_PATTERN} in the folder; give a folder of logs")
    return logs


def judge_path(path: Path, ruleset: str) -> list[Judgement]:
    """Verdicts on the log at the path, or on all logs in the folder there."""
    try:
        return [judge(log, ruleset) for log in find_logs(path)]
    except CannotJudge as problem:
        return [_cannot_judge(path, ruleset, problem)]


def judge(path: Path, ruleset: str) -> Judgement:
    """The verdict on one log under one ruleset."""
    try:
        facts = RunFacts(read_events(path))
    except CannotJudge as problem:
        return _cannot_judge(path, ruleset, problem)
    verdict = official.check(path, facts, ruleset)
    findings = tuple(
        Finding("official", "error", None, message, f"what ruleset {ruleset} asks", "see the ruleset's text")
        for message in verdict.messages
    )
    overall: dict[official.Verdict, Literal["pass", "fail", "cannot-judge"]] = {
        "pass": "pass", "fail": "fail", "error": "cannot-judge",
    }  # fmt: skip
    return Judgement(path, overall[verdict.verdict], verdict, facts, findings)


def _cannot_judge(path: Path, ruleset: str, problem: CannotJudge) -> Judgement:
    finding = Finding("readable", "error", None, str(problem), "an MLPerf log", "give the log as it was written")
    return Judgement(path, "cannot-judge", official.OfficialVerdict(ruleset, "error"), None, (finding,))
