"""Judge runs, group them by system and settings, and summarize each group: the numbers of `bertbench report`.

run_tables.py shows them in a terminal, report_page.py on a page.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any

from bertbench.config.layout import bubble_share
from bertbench.runs.flop_rates import RunFlops, flops_of
from bertbench.runs.formats import TRAINING
from bertbench.runs.json_files import metric_curve
from bertbench.runs.ledger import ledger
from bertbench.runs.log_spans import energy, evaluation_s, startup, startup_s
from bertbench.runs.run_settings import (
    RunGroup,
    Runs,
    Values,
    configured,
    grouped_by_settings,
    reached_not_passed,
    reached_target,
    target_of,
)
from bertbench.runs.sample_counts import sample_counts, samples_per_s
from bertbench.runs.scores import RUNS, counted_in_score, mean_of, mlperf_score
from bertbench.runs.straggler import Straggler, straggler_of
from bertbench.runs.verdicts import JudgeFinding, Verdict, verdicts_on
from compliance.read.find import find_logs
from compliance.read.log import CannotJudge, read_events
from compliance.read.run import RunFacts, as_integer
from compliance.read.source import STDIN


@dataclass(frozen=True)
class RunSummary:
    """What `report --json` contains for a run; an unknown field is None."""

    log: str
    is_log: bool
    status: str | None
    verdict: str | None
    reached: bool
    """Whether the run reached the target and the judge passes its log."""
    reached_not_passed: bool
    """Whether the run reached the target, but the judge doesn't pass its log."""
    not_a_result: str | None
    counted: bool
    """Whether the run counts in the group's score or, if there is no score, in its mean."""
    seed: Any
    started: str | None
    """The date and time in UTC."""
    time_to_train_s: float | None
    samples: float | None
    """Training samples at the last evaluation."""
    samples_from: str | None
    """The way in which the samples were counted."""
    samples_per_s: float | None
    best_accuracy: float | None
    target: float | None
    evaluations: int
    startup_s: float | None
    steps_s: float | None
    evaluation_s: float
    startup: dict[str, dict[str, float]] | None
    """The seconds of each part of the start-up."""
    ledger: dict[str, float] | None
    """The seconds of wall-clock time, across restarts and requeues."""
    energy: dict[str, Any] | None
    """The joules from run_start to run_stop, and those of each kind of counter: nvml, rapl."""
    load_efficiency: float | None
    tflops_per_device: float | None
    """The model's FLOP/s without padding, over the time of all steps; on a CPU, a device is a rank."""
    mfu: float | None
    """Model FLOP utilisation: the share of the device's peak."""
    flops: RunFlops
    """Both of them again, with the peak and its source, or with the reason why the peak is unknown."""
    bubble: float | None
    """The share of a pipeline's time in which its ranks wait for other stages; the mean of all steps."""
    bubble_of_equal_stages: float | None
    """The same by the formula, for stages that take equal time."""
    straggler: Straggler | None
    findings: list[JudgeFinding]

    @property
    def name(self) -> str:
        """Return the run's name in a table."""
        return Path(self.log).stem


@dataclass(frozen=True)
class GroupSummary:
    """What `report --json` contains for the runs of one system with the same settings."""

    system: str
    settings: Values
    runs: list[RunSummary]
    reached: int
    """The number of results that reached the target and that the judge passes."""
    reached_not_passed: int
    """The number of results that reached the target, but whose logs the judge doesn't pass."""
    mean_time_to_train_s: float | None
    """The mean of the results that `reached` counts; so is the next field."""
    mean_samples_to_converge: float | None
    score_s: float | None
    rulesets: list[str]
    passed: int
    """The number of logs that the judge passes."""
    findings: list[JudgeFinding]
    """The judge's findings across runs."""

    @property
    def results(self) -> list[RunSummary]:
        """Return the runs that aren't smoke tests or profiles."""
        return [run for run in self.runs if run.not_a_result is None]


def judged_groups(paths: Sequence[Path], ruleset: str | None) -> list[RunGroup]:
    """Judge runs, and group them by system and settings in the order of the logs; files that aren't logs have no facts.

    Each folder is a system, named after the platform of its first log. If several folders have the same platform, the
    name also contains the folder. Raises CannotJudge if there is no log, or if none can be read.
    """
    logs = list(dict.fromkeys(log for path in paths for log in find_logs(path)))
    verdicts, together = verdicts_on(logs, ruleset)
    if not any(verdict.is_log for verdict in verdicts.values()):
        message = verdicts[logs[0]].findings[0].found
        if len(logs) > 1:
            message += f"; {len(logs) - 1} more files can't be read either"
        raise CannotJudge(message)
    folders: dict[Path, Runs] = defaultdict(list)
    for log in logs:
        folders[log.parent].append((log, _facts(log, verdicts[log])))
    platforms = {folder: _platform(folder, runs) for folder, runs in folders.items()}
    folders_of_platform = Counter(platforms.values())
    groups: list[RunGroup] = []
    for folder, runs in folders.items():
        name = platforms[folder]
        if folders_of_platform[name] > 1:
            name = f"{name}, {folder}"
        of_folder = [replace(group, verdicts=verdicts) for group in grouped_by_settings(name, runs)]
        of_folder[-1] = replace(of_folder[-1], together=together[folder])
        groups += of_folder
    return groups


def _facts(log: Path, verdict: Verdict) -> RunFacts:
    """Return a log's facts, or no facts for a file that isn't a log. Standard input isn't read a second time."""
    if verdict.facts is None:
        return RunFacts([])
    return verdict.facts if log == STDIN else RunFacts(read_events(log))


def _platform(folder: Path, runs: Runs) -> str:
    """Return the platform that the first log in a folder names, or else the name of the system's folder."""
    return next((facts.platform for _, facts in runs if facts.platform), folder.parent.name)


def summarized(group: RunGroup) -> GroupSummary:
    """Return the numbers of a group for `report --json`."""
    runs = [_summary(log, facts, group.verdicts[log]) for log, facts in group.runs]
    results = [run for run in runs if run.not_a_result is None]
    times = [run.time_to_train_s if run.reached else None for run in results]
    score_s = mlperf_score(times) if len(results) == RUNS else None
    if score_s is None:
        counted = {run.log for run in results if run.reached}
    else:
        in_score = zip(results, counted_in_score(times), strict=True)
        counted = {run.log for run, counts in in_score if counts and run.reached}
    reaching = [run for run in results if run.reached]
    return GroupSummary(
        system=group.name,
        settings=group.settings,
        runs=[replace(run, counted=run.log in counted) for run in runs],
        reached=len(reaching),
        reached_not_passed=sum(run.reached_not_passed for run in results),
        mean_time_to_train_s=mean_of([run.time_to_train_s for run in reaching]),
        mean_samples_to_converge=mean_of([run.samples for run in reaching]),
        score_s=score_s,
        rulesets=sorted({group.verdicts[log].ruleset for log, _ in group.runs}),
        passed=sum(run.verdict == "pass" for run in runs),
        findings=list(group.together),
    )


def _summary(log: Path, facts: RunFacts, verdict: Verdict) -> RunSummary:
    total_s = facts.time_to_train_s
    before_steps_s = startup_s(facts)
    evaluating_s = evaluation_s(facts)
    steps_s = None
    if total_s is not None and before_steps_s is not None:
        steps_s = total_s - before_steps_s - evaluating_s
    samples = sample_counts(facts)
    flops = flops_of(log)
    bubbles = [value for _, value in metric_curve(log, "bubble")]
    efficiencies = [value for _, value in metric_curve(log, "load_efficiency")]
    return RunSummary(
        log=str(log),
        is_log=verdict.is_log,
        status=facts.status,
        verdict=verdict.verdict,
        reached=reached_target(log, facts, verdict),
        reached_not_passed=reached_not_passed(log, facts, verdict),
        not_a_result=facts.not_a_result,
        counted=False,  # set later, for the whole group
        seed=facts.seed,
        started=_date(facts.started_ms),
        time_to_train_s=total_s,
        samples=samples.total,
        samples_from=samples.source,
        samples_per_s=samples_per_s(facts),
        best_accuracy=facts.best_accuracy,
        target=target_of(log, facts),
        evaluations=len(facts.evaluations),
        startup_s=before_steps_s,
        steps_s=steps_s,
        evaluation_s=evaluating_s,
        startup=startup(facts),
        ledger=_ledger(log),
        energy=energy(facts),
        load_efficiency=mean(efficiencies) if efficiencies else None,
        tflops_per_device=flops.tflops_per_device,
        mfu=flops.mfu,
        flops=flops,
        bubble=mean(bubbles) if bubbles else None,
        bubble_of_equal_stages=_equal_stages_bubble(log),
        straggler=None if facts.not_a_result else straggler_of(log),
        findings=list(verdict.findings),
    )


def _equal_stages_bubble(log: Path) -> float | None:
    """Return the bubble of a run's pipeline by the formula; None without a pipeline."""
    settings = configured(log)
    names = ("pipeline", "microbatches", "virtual_stages")
    sizes = [as_integer(settings.get(f"parallel.{name}")) for name in names]
    pipeline, microbatches, virtual_stages = sizes
    if pipeline is None or microbatches is None or virtual_stages is None or pipeline < 2 or microbatches < 1:
        return None
    return bubble_share(pipeline, microbatches, max(1, virtual_stages))


def _date(time_ms: float | None) -> str | None:
    """Return a log's time as a date and time in UTC; None if it is outside the calendar."""
    if time_ms is None:
        return None
    try:
        return f"{datetime.fromtimestamp(time_ms / 1e3, UTC):%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError, OSError):
        return None


def _ledger(log: Path) -> dict[str, float] | None:
    """Return the parts of wall-clock time under the names of `report --json`, with their sum and the goodput."""
    seconds = ledger(log)
    if seconds is None:
        return None
    wall_s = sum(seconds.values())
    buckets = {f"{bucket.replace('-', '').replace(' ', '_')}_s": spent for bucket, spent in seconds.items()}
    return {"wall_s": wall_s, **buckets, "goodput": seconds[TRAINING] / wall_s if wall_s else 0.0}
