"""Judge one result of a package: the runs of one benchmark on one system, alone and together.

For the runs together, the rules require: a number of runs, at most one failure, one system, a different seed in each
run, and no fewer samples to converge than the reference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compliance.judge import Judgement, asked_together, judge_log
from compliance.official import DEFAULT_RULESET, tools
from compliance.official.ruleset import ruleset_of_path
from compliance.package.checker_options import OPTIONS_FILE, SEED_CHECKER_BYPASS, checker_options
from compliance.package.convergence import SCALING_FILE, judge_convergence, judge_scaling
from compliance.package.power import FOLDER, ResultPower, judge_power
from compliance.read.description import DIVISIONS, fields_of_result
from compliance.read.find import LOG_PATTERN
from compliance.read.record import distinct, shown_values
from compliance.read.run import RunFacts
from compliance.read.score import olympic_mean
from compliance.read.source import CannotJudge
from compliance.rules.benchmark_results import FAILED_RUNS, RUNS, SAME_SYSTEM
from compliance.rules.convergence_points import CONVERGENCE
from compliance.rules.divisions import BELONGS
from compliance.rules.random_numbers import (
    SEEDS,
    SEEDS_LOGGED_SINCE,
    equal_seeds,
    seeds_of_runs,
    unreadable_for_seeds,
)
from compliance.rules.rule import Breach, Unchecked
from compliance.rules.run_results import run_is_a_result

_MOST_RUNS = 50
"""Most runs that are judged; a result has ten."""

Findings = list[Breach | Unchecked]


@dataclass(frozen=True)
class Result:
    """The verdict on one result; `time_to_train_s` is the mean of the runs that count, before scaling.

    `breaches` concern the runs together. Breaches of single logs are in `logs`; one run may fail.
    """

    system: str
    benchmark: str
    division: str | None
    ruleset: str
    logs: tuple[Judgement, ...]
    time_to_train_s: float | None
    convergence: tools.Convergence | None
    breaches: tuple[Breach, ...]
    not_applied: tuple[Unchecked, ...]
    energy_j: float | None
    """Mean of the runs that count, before scaling; None if not measured."""
    failed_run: str | None = None
    """The only run that failed, which is dropped as the slowest."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `--json` prints."""
        plain = ("system", "benchmark", "division", "time_to_train_s", "energy_j", "convergence", "failed_run")
        return {
            **{name: getattr(self, name) for name in plain},
            "findings": [breach.as_json() for breach in self.breaches],
            "not_applied": [unchecked.as_json() for unchecked in self.not_applied],
            "logs": [log.as_json() for log in self.logs],
        }


def judge_result(folder: Path, ruleset: str | None = None, name: str | None = None) -> Result:
    """Judge the runs in results/<system>/<benchmark>, under the given ruleset or else the one that they indicate.

    Messages call the folder `name`. Raises CannotJudge if there is no such folder.
    """
    if not folder.is_dir():
        raise CannotJudge(f"{folder}: no such folder; give results/<system>/<benchmark>, with {LOG_PATTERN}")
    name = name or str(folder)
    described = fields_of_result(folder)
    entries = sorted(folder.glob(LOG_PATTERN), key=lambda path: (len(path.name), path.name))
    paths = [path for path in entries if path.is_file()][:_MOST_RUNS]
    if ruleset is None:
        ruleset = _ruleset_of(folder, paths)
    logs = asked_together([judge_log(path, ruleset).kept() for path in paths])
    runs = {log.path.name: log.facts for log in logs if log.facts is not None}
    division = _division(described)
    closed = _is_closed(division, runs)
    failed = [log.path.name for log in logs if not _converged(log)]
    power = judge_power(folder, name, {log.path.name: log.facts for log in logs}, described)
    failed_or_refused = {*failed, *power.noncompliant}
    failing = [log.path.name for log in logs if log.path.name in failed_or_refused]
    findings: Findings = [
        *_number_of_runs(folder, entries, paths),
        *_failed(failing, len(logs)),
        *_not_results(runs),
        *_belonging(folder.name, division, runs),
        *_same_system(runs),
    ]
    if closed and ruleset >= SEEDS.since:
        unreadable = [log.path.name for log in logs if _has_unreadable_record(log)]
        findings += _seeds(folder, ruleset, unreadable, runs)
    convergence = None
    if closed and ruleset >= CONVERGENCE.since and len(logs) == tools.runs_per_result(folder.name) and runs:
        convergence = tools.convergence([log.facts for log in logs], ruleset)
        findings += judge_convergence(folder, convergence, logs)
    findings += judge_scaling(folder, convergence.scaling if convergence else 1.0)
    all_findings = [_with_result_named(finding, name) for finding in findings]
    all_findings += _power_findings(power, failed, failing)
    times = [log.facts.time_to_train_s if _converged(log) and log.facts else None for log in logs]
    return Result(
        system=folder.parent.name,
        benchmark=folder.name,
        division=division,
        ruleset=ruleset,
        logs=tuple(logs),
        time_to_train_s=None if all(time is None for time in times) else olympic_mean(times),
        convergence=convergence,
        breaches=tuple(finding for finding in all_findings if isinstance(finding, Breach)),
        not_applied=tuple(finding for finding in all_findings if isinstance(finding, Unchecked)),
        energy_j=power.energy_j,
        failed_run=failed[0] if len(failed) == 1 else None,
    )


def _ruleset_of(folder: Path, paths: Sequence[Path]) -> str:
    """Return the ruleset that the folder's path or most of its logs indicate."""
    by_path = ruleset_of_path(folder)
    if by_path is not None:
        return by_path
    by_logs = [judge_log(path).official.ruleset for path in paths]
    return max(by_logs, key=by_logs.count, default=DEFAULT_RULESET)


def _with_result_named(finding: Breach | Unchecked, name: str) -> Breach | Unchecked:
    """Return a finding that names the result; it has no line, because its text names the log."""
    if isinstance(finding, Breach):
        return finding._replace(found=f"{name}: {finding.found}", line=None)
    return finding._replace(reason=f"{name}: {finding.reason}")


def _is_closed(division: str | None, runs: Mapping[str, RunFacts]) -> bool:
    """Return whether the closed division's rules apply; the logs decide if the description states no division."""
    if division in DIVISIONS:
        return division == "closed"
    return any(facts.division == "closed" for facts in runs.values())


def _division(described: Mapping[str, str]) -> str | None:
    """Return a description's division, in lower case if it is a known one: the submission rules allow upper case."""
    division = described.get("division")
    if division is not None and division.lower() in DIVISIONS:
        return division.lower()
    return division


def _converged(log: Judgement) -> bool:
    return log.verdict == "pass" and log.facts is not None and log.facts.status == "success"


def _has_unreadable_record(log: Judgement) -> bool:
    return any(breach.rule.id == "record" for breach in log.breaches)


def _number_of_runs(folder: Path, entries: Sequence[Path], paths: Sequence[Path]) -> Findings:
    findings: Findings = []
    expected = tools.runs_per_result(folder.name)
    if len(paths) != expected:
        findings.append(RUNS.breach(f"{len(entries)} {LOG_PATTERN}", f"exactly {expected}, all of them files"))
    known = {*paths, *(folder / name for name in (OPTIONS_FILE, SCALING_FILE, FOLDER))}
    others = sorted({*folder.iterdir()} - known)
    if others:
        reason = f"the judge doesn't read other files and folders: {', '.join(path.name for path in others[:5])}"
        findings.append(RUNS.unchecked(reason, asked=False))  # the official checker only warns
    return findings


def _failed(failed: Sequence[str], count: int) -> Findings:
    if len(failed) < 2:
        return []
    return [FAILED_RUNS.breach(f"{len(failed)} of {count} runs failed: {', '.join(failed)}")]


def _power_findings(power: ResultPower, failed: Sequence[str], failing: Sequence[str]) -> Findings:
    """Return the findings in the power files; the official checker counts a run whose files it refuses as failed.

    This doesn't excuse a run that converged and wasn't measured, because its time counts and its energy is missing.
    """
    all_findings = [*power.findings]
    for log, findings in power.noncompliant.items():
        is_excused = len(failing) == 1 and (log in failed or log not in power.unmeasured)
        all_findings += [_excused(finding) for finding in findings] if is_excused else findings
    return all_findings


def _excused(finding: Breach | Unchecked) -> Unchecked:
    if isinstance(finding, Unchecked):
        return finding._replace(asked=False)
    return finding.rule.unchecked(f"{finding.found}; accepted, because one run may fail", asked=False)


def _not_results(runs: Mapping[str, RunFacts]) -> Findings:
    """Find runs that aren't results: one run may fail, but it must be a complete run."""
    tries = [log for log, facts in runs.items() if facts.not_a_result]
    if not tries:
        return []
    return [run_is_a_result.breach(f"runs that log not_a_result: {', '.join(tries)}", "complete runs")]


def _belonging(benchmark: str, division: str | None, runs: Mapping[str, RunFacts]) -> Findings:
    findings: Findings = []
    for field, stated in (("division", division), ("benchmark", benchmark)):
        if not stated:
            continue
        logged = {name: getattr(facts, field) for name, facts in runs.items()}
        others = {name: value for name, value in logged.items() if value != stated}
        if others:
            other = next(iter(others.values()))
            logged_value = "missing" if other is None else repr(other)
            text = f"submission_{field} is {logged_value} in {', '.join(others)}"
            findings.append(BELONGS.breach(text, f"{stated!r}, as in the package"))
    return findings


def _same_system(runs: Mapping[str, RunFacts]) -> Findings:
    findings: Findings = []
    for key in ("submission_org", "submission_platform"):
        logged = {name: shown_values((event.value for event in facts.all(key)), 40) for name, facts in runs.items()}
        values = list(logged.values())
        usual = max(distinct(values), key=values.count, default="")
        others = [f"{value} in {name}" for name, value in logged.items() if value != usual]
        if others:
            findings.append(SAME_SYSTEM.breach(f"{key} is {usual} in most runs, but {', '.join(others[:5])}"))
    return findings


def _seeds(folder: Path, ruleset: str, unreadable: Sequence[str], runs: Mapping[str, RunFacts]) -> Findings:
    """Apply the official seed checker; with its bypass, the review decides, and a gap remains.

    From the round whose text forbids equal seeds ("Random numbers"), the bypass doesn't excuse them.
    """
    equal = [SEEDS.breach(pair, "a different seed in every run") for pair in equal_seeds(runs).values()]
    others = [*unreadable_for_seeds(unreadable), *seeds_of_runs(runs)]
    if SEED_CHECKER_BYPASS not in checker_options(folder):
        return [*equal, *others]
    if ruleset >= SEEDS_LOGGED_SINCE:
        return [*equal, *(_bypassed(breach) for breach in others)]
    return [_bypassed(breach) for breach in (*equal, *others)]


def _bypassed(breach: Breach) -> Unchecked:
    return SEEDS.unchecked(f"waived by {SEED_CHECKER_BYPASS}: {breach.found}")
