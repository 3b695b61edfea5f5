"""Judge a result's runs together: a seed each, the same settings, system and speed."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

from compliance.alike import MEND, MOST_KEPT, Trace, trace
from compliance.finding import Finding, Findings, Severity
from compliance.judge import Judgement
from compliance.judge import judge as judge_log
from compliance.record import distinct, shown
from compliance.rules.division import FIXED
from compliance.rules.hyperparameters import NUMBERS
from compliance.rules.samples import evaluation_interval, reference_samples
from compliance.run import RunFacts, as_integer, number
from compliance.source import CannotJudge, read_plain

PARAMETERS = "package_checker_params"
_SETTINGS = ("global_batch_size", "d_batch_size", "opt_name", "eval_samples", *NUMBERS, *FIXED)
_NAMES = ("submission_platform", "submission_org", "submission_division")
# Keys of a run that its result's judge needs, and events kept of each; thousands of ranks may each log a seed.
KEPT = frozenset(
    (
        *_SETTINGS, *_NAMES, "seed", "submission_benchmark", "submission_status", "run_start", "run_stop",
        "eval_accuracy", "train_samples", "not_a_result",
    )
)  # fmt: skip
_Runs = Mapping[str, RunFacts]
_FEWEST = 3  # runs that have a usual speed
_FASTER, _MUCH_FASTER = 0.06, 1.15  # of the median speed
_ALL_SOONER = 0.87  # of the reference's samples, as a mean; published results take 0.95 up to the next evaluation
_SOONER = 0.75  # of the median's samples to converge; of 303 reference runs the soonest takes 0.82 of its row's


def judged(
    path: Path, name: str, ruleset: str, division: str | None = None, strict: bool = False
) -> tuple[Judgement, Trace]:
    """Judge one run; return what its result's judge needs, small enough to keep, or to send between processes."""
    judgement = judge_log(path, ruleset, division, strict)
    facts = judgement.facts
    return replace(judgement, facts=facts and facts.only(KEPT, MOST_KEPT)), trace(name, facts)


def judge(folder: Path, closed: bool, ruleset: str, runs: Sequence[Judgement]) -> Findings:
    """Yield faults of a result's runs together; `folder` may hold the submitter's requests for exceptions."""
    readable = {run.path.name: run.facts for run in runs if run.facts is not None}
    if full := [log for log, facts in readable.items() if any(len(facts.all(key)) == MOST_KEPT for key in KEPT)]:
        found = f"{', '.join(full)}: {MOST_KEPT:,} events of a key, or more; the first were compared"
        yield Finding("settings", "warning", found, "some tens of events", MEND)
    required = "seed-checker-bypass" not in parameters(folder)
    broken = [run.path.name for run in runs if any(finding.rule == "record" for finding in run.findings)]
    if closed and required and broken:
        # the official seed checker allows no such run, not even as the one that failed
        found = f"{', '.join(broken)}: records that can't be read"
        yield Finding("seed", "error", found, "logs that the official seed checker can read", MEND)
    yield from _seeds(closed, required, readable)
    yield from _settings(readable)
    yield from _speeds(ruleset, readable)
    yield from _overlaps(readable)


def parameters(folder: Path) -> list[str]:
    """Return the lines of package_checker_params, with their line ends, as the official checker reads them."""
    lines: list[str] = []
    for path in (folder / PARAMETERS, folder.parent / PARAMETERS):
        try:
            content = read_plain(path, 1 << 16)
        except CannotJudge:
            continue
        lines += io.StringIO(content.decode(errors="replace"), newline=None).readlines()
    return lines


def _seeds(closed: bool, required: bool, runs: _Runs) -> Findings:
    asked = "a seed of its own in every run, a whole number from the clock or /dev/urandom"
    severity: Severity = "error" if closed else "warning"
    first: dict[int, str] = {}
    for log, facts in runs.items():
        seeds = [(event, as_integer(event.value)) for event in facts.all("seed")]
        if not seeds and closed:
            yield Finding("seed", "error" if required else "warning", f"{log} logs no seed", asked, "log the seed")
        for event, seed in seeds:
            if seed is None:
                found = f"{log} logs seed {shown(event.value)}"
                yield Finding("seed", severity, found, asked, "log the number that seeded the generators", event.line)
            elif first.setdefault(seed, log) != log:
                found = f"{log} logs seed {shown(event.value)}, as {first[seed]} does"
                yield Finding("seed", severity, found, asked, MEND, event.line)


def _settings(runs: _Runs) -> Findings:
    for key in (*_SETTINGS, *_NAMES):
        logged = {log: distinct(event.value for event in facts.all(key)) for log, facts in runs.items()}
        different = distinct(logged.values())
        if len(different) > 1:
            usual = max(different, key=list(logged.values()).count)
            others = [f"{shown(values, 40)} in {log}" for log, values in logged.items() if values != usual]
            rule = "same-system" if key in _NAMES else "settings"
            severity: Severity = "error" if key in ("global_batch_size", *_NAMES) else "warning"
            found = f"{key} is {shown(usual, 40)}, but {', '.join(others[:5])}"
            yield Finding(rule, severity, found, "the same in all runs of a result", MEND)


def _overlaps(runs: _Runs) -> Findings:
    """Find the few runs that start before another stops; published results also have all runs beside each other."""
    spans = sorted((facts.started_ms or 0.0, facts.stopped_ms or 0.0, log) for log, facts in runs.items())
    early = [log for (_, stopped, _), (started, _, log) in pairwise(spans) if started < stopped]
    if 0 < len(early) < len(runs) / _FEWEST:
        found = f"{', '.join(early)}: started before the run before it stopped, unlike the others"
        yield Finding("speed", "warning", found, "runs after each other, or all side by side", MEND)


def _speeds(ruleset: str, runs: _Runs) -> Findings:
    """Find runs faster than their siblings, by more than either differ or by much, or that converge far sooner.

    Of the former, time was cut evenly; of the latter, evaluations were left out, perhaps of all.
    """
    speeds: dict[str, float] = {}
    trained: dict[str, float] = {}
    ended = set[float]()
    reference, times = 0.0, []
    for log, facts in runs.items():
        batch, seconds, samples = number(facts.global_batch_size), facts.time_to_train_s, facts.samples
        if seconds and seconds > 0 and facts.evaluations and facts.status == "success":
            interval = evaluation_interval(batch or 0.0)
            counted = samples if samples and batch and samples >= batch else interval * len(facts.evaluations)
            if facts.division == "closed":
                reference = reference_samples(ruleset, batch or 0.0) or 0.0
            speeds[log] = counted / seconds
            ended.add(facts.evaluations[-1].accuracy)
            times += [seconds] * facts.is_fine
            trained[log] = counted * (1 + 1 / len(facts.evaluations))  # up to the next evaluation
    if len(speeds) < _FEWEST:
        return
    if len(set(times)) < len(times) - 1:
        yield Finding("speed", "warning", "runs of the same time to the millisecond", "times that differ", MEND)
    if 2 * len(ended) < len(speeds):
        yield Finding("speed", "warning", "runs that end with the same accuracy", "accuracies that differ", MEND)
    all_soon = mean(trained.values()) < _ALL_SOONER * reference
    if soon := [log for log, samples in trained.items() if all_soon or samples < _SOONER * median(trained.values())]:
        found = f"{', '.join(soon)}: the target after far fewer samples than in the other runs, or than the reference's"
        yield Finding("speed", "warning", found, f"at least {_SOONER:.0%} of their median", MEND)
    usual, ordered = median(speeds.values()), sorted(speeds.values())
    gap, at = max((b - a, index) for index, (a, b) in enumerate(pairwise(ordered), 1))
    slow, quick = ordered[:at], ordered[at:]
    apart = len(slow) >= _FEWEST and gap > max(_FASTER * usual, slow[-1] - slow[0], quick[-1] - quick[0])
    fast = [log for log, speed in speeds.items() if (apart and speed in quick) or speed > _MUCH_FASTER * usual]
    if fast:
        found = f"{', '.join(fast)} faster than the other runs, by {max(gap, ordered[-1] - usual) / usual:.0%}"
        yield Finding("speed", "warning", found, "runs of one system at one speed", MEND)
