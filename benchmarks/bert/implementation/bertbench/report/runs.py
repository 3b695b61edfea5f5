"""Tabulate runs: time to train and the judge's verdict per run, means, samples to converge, speed and balance.

A table holds the runs of one system with the same settings (settings.py).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any

from bertbench.common.log_spans import evaluation_s, startup, startup_s
from bertbench.common.markup import aligned, cell
from bertbench.common.mlperf import accuracy_text
from bertbench.common.timeline import TRAINING
from bertbench.report.details import details
from bertbench.report.ledger import ledger
from bertbench.report.scores import RUNS, counted, mean_of, score
from bertbench.run_files.energy import energy
from bertbench.run_files.reading import curve
from bertbench.run_files.samples import EPOCH_NUM, sample_counts, samples_per_s
from bertbench.run_files.settings import Group, Runs, divided, reached, target_of, title
from bertbench.run_files.straggler import Straggler, straggler_of
from bertbench.run_files.verdicts import Verdict, finding_text, no_log_text, verdicts
from compliance.read.find import find_logs
from compliance.read.log import CannotJudge, read_events
from compliance.read.run import RunFacts
from compliance.read.source import STDIN


def systems(paths: Sequence[Path], ruleset: str | None) -> list[Group]:
    """Judge runs, and group them by system and settings, in the order of the logs; a file that is no log has no facts.

    A system is a folder, named by its first platform; if folders share a platform, the folder is named too.
    Raises CannotJudge if there is no log, or none can be read.
    """
    logs = list(dict.fromkeys(log for path in paths for log in find_logs(path)))
    singly, together = verdicts(logs, ruleset)
    if not any(one.is_log for one in singly.values()):
        more = f"; {len(singly) - 1} more files can't be read either" if len(singly) > 1 else ""
        raise CannotJudge(singly[logs[0]].findings[0].found + more)
    folders: dict[Path, Runs] = defaultdict(list)
    for log in logs:
        folders[log.parent].append((log, _facts(log, singly[log])))
    names = {
        folder: next((facts.platform for _, facts in runs if facts.platform), folder.parent.name)
        for folder, runs in folders.items()
    }
    of_name = Counter(names.values())
    groups: list[Group] = []
    for folder, runs in folders.items():
        name = names[folder] if of_name[names[folder]] == 1 else f"{names[folder]}, {folder}"
        judged = [group._replace(verdicts=singly) for group in divided(name, runs)]
        judged[-1] = judged[-1]._replace(together=together[folder])
        groups += judged
    return groups


def _facts(log: Path, verdict: Verdict) -> RunFacts:
    """Return a log's facts; none of a file that is no log. Standard input, which the judge has read, is read once."""
    if verdict.facts is None:
        return RunFacts([])
    return verdict.facts if log == STDIN else RunFacts(read_events(log))


def summarized(group: Group) -> dict[str, Any]:
    """Return the object of a group in `report --json`."""
    rows = [_row(log, facts, group.verdicts[log]) for log, facts in group.runs]
    results = [row for row in rows if row["not_a_result"] is None]
    times = [row["time_to_train_s"] if row["reached"] else None for row in results]
    scored = score(times) if len(results) == RUNS else None
    for row, counts in zip(results, counted(times), strict=True):
        row["counted"] = row["reached"] and (scored is None or counts)
    reaching = [row for row in results if row["reached"]]
    return {
        "system": group.name,
        "settings": group.settings,
        "runs": rows,
        "reached": len(reaching),
        "mean_time_to_train_s": mean_of([row["time_to_train_s"] for row in reaching]),
        "mean_samples_to_converge": mean_of([row["samples"] for row in reaching]),
        "score_s": scored,
        "rulesets": sorted({group.verdicts[log].ruleset for log, _ in group.runs}),
        "passed": sum(row["verdict"] == "pass" for row in rows),
        "findings": list(group.together),
    }


def _row(log: Path, facts: RunFacts, verdict: Verdict) -> dict[str, Any]:
    total, begun_s, pieces = facts.time_to_train_s, startup_s(facts), startup(facts)
    steps = None if total is None or begun_s is None else total - begun_s - evaluation_s(facts)
    efficiency = [value for _, value in curve(log, "load_efficiency")]
    samples = sample_counts(facts)
    return {
        "log": str(log),
        "is_log": verdict.is_log,
        "status": facts.status,
        "verdict": verdict.verdict,
        "reached": reached(log, facts, verdict),
        "not_a_result": facts.not_a_result,
        "counted": False,
        "seed": facts.seed,
        "started": _date(facts.started_ms),
        "time_to_train_s": total,
        "samples": samples.total,
        "samples_from": samples.source,
        "samples_per_s": samples_per_s(facts),
        "best_accuracy": facts.best_accuracy,
        "target": target_of(log, facts),
        "evaluations": len(facts.evaluations),
        "startup_s": begun_s,
        "steps_s": steps,
        "evaluation_s": evaluation_s(facts),
        "startup": pieces,
        "ledger": _ledger(log),
        "energy": energy(log, facts),
        "load_efficiency": mean(efficiency) if efficiency else None,
        "straggler": None if facts.not_a_result or not (slow := straggler_of(log)) else slow._asdict(),
        "findings": list(verdict.findings),
    }


def _date(time_ms: float | None) -> str | None:
    """Return a log's time as a date and time, UTC; None for a time that no calendar has."""
    try:
        return None if time_ms is None else f"{datetime.fromtimestamp(time_ms / 1e3, UTC):%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError, OSError):
        return None


def _ledger(log: Path) -> dict[str, float] | None:
    seconds = ledger(log)
    if seconds is None:
        return None
    wall = sum(seconds.values())
    buckets = {f"{bucket.replace('-', '').replace(' ', '_')}_s": time for bucket, time in seconds.items()}
    return {"wall_s": wall, **buckets, "goodput": seconds[TRAINING] / wall if wall else 0.0}


_MOST_FINDINGS = 20  # lines of a terminal; `bertbench judge` lists all

COLUMNS = {
    "run": ("run", "{}"),
    "system": ("system", "{}"),
    "seed": ("seed", "{}"),
    "status": ("status", "{}"),
    "time_to_train_s": ("time s", "{:.1f}"),
    "samples": ("samples", "{:,.0f}"),
    "best_accuracy": ("accuracy", "{}"),
    "samples_per_s": ("samples/s", "{:,.1f}"),
    "evaluations": ("evals", "{}"),
    "startup_s": ("start-up s", "{:.2f}"),
    "steps_s": ("steps s", "{:.1f}"),
    "evaluation_s": ("eval s", "{:.1f}"),
    "commit": ("commit", "{:.7}"),
    "verdict": ("verdict", "{}"),
}
"""Heading and form of each value of a run that a table shows."""
_REPORTED = (
    "time_to_train_s", "samples", "samples_per_s", "best_accuracy", "evaluations", "startup_s", "steps_s",
    "evaluation_s",
)  # fmt: skip


def cells(row: dict[str, Any], columns: Sequence[str]) -> list[str]:
    """Return these values of a run as text."""
    shown = {**row, "best_accuracy": None if row["best_accuracy"] is None else _accuracy(row)}
    return ["-" if shown[key] is None else cell(COLUMNS[key][1].format(shown[key])) for key in columns]


def _accuracy(row: dict[str, Any]) -> str:
    return accuracy_text(row["best_accuracy"], row["target"])


def text_rows(content: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the header and a row per run, for an object of `summarized`."""
    header = ["run", "verdict", *(COLUMNS[key][0] for key in _REPORTED)]
    left_out = _left_out(content)
    rows = [
        [cell(Path(row["log"]).stem), outcome(row) + left_out.get(row["log"], ""), *cells(row, _REPORTED)]
        for row in content["runs"]
    ]
    return header, rows


def outcome(row: dict[str, Any]) -> str:
    """Return the judge's verdict on a run that ended with success, or else how the run ended."""
    if not row["is_log"]:
        return "no log"
    if row["not_a_result"]:
        return "no result"
    if row["reached"] or row["verdict"] == "cannot-judge":
        return str(row["verdict"]).replace("-", " ")
    if row["status"] == "success":
        return "fail" if row["verdict"] == "fail" else "missed the target"
    return cell(str(row["status"] or "unfinished"))


def _left_out(content: dict[str, Any]) -> dict[str, str]:
    """Return, by log, a remark for a run that is left out of the score although it reached the target."""
    if content["score_s"] is None:
        return {}
    left_out = [row for row in content["runs"] if row["reached"] and not row["counted"]]
    fastest, *slowest = sorted(left_out, key=lambda row: row["time_to_train_s"])
    return {fastest["log"]: " (fastest)"} | {row["log"]: " (slowest)" for row in slowest}


def conclusion(content: dict[str, Any]) -> str:
    """Return a sentence on the runs of an object of `summarized`."""
    runs, number = sum(row["not_a_result"] is None for row in content["runs"]), content["reached"]
    parts = [f"{number} of {runs} runs reached the target"]
    if number:
        time, samples = content["mean_time_to_train_s"], content["mean_samples_to_converge"]
        means = ["an unknown time" if time is None else f"{time:.1f} s"]
        means += [] if samples is None else [f"{samples:,.0f} samples"]
        of = "time to train" if number == 1 else f"mean of {'all ' if number == runs else ''}{number}:"
        parts.append(f"{of} {', '.join(means)}")
    if content["score_s"] is not None:
        parts.append(f"MLPerf's score: {content['score_s']:.1f} s, the mean without the fastest and the slowest run")
    return "; ".join(parts)


def remarks(content: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence each on the convergence, the speed and the balance of a group, as far as they are known."""
    yield conclusion(content)
    yield from _samples(content)
    results = [row for row in content["runs"] if row["not_a_result"] is None]
    timed = [row for row in results if row["time_to_train_s"] and row["samples_per_s"] and row["steps_s"] is not None]
    if timed:
        total = sum(row["time_to_train_s"] for row in timed)
        parts = (("training", "steps_s"), ("evaluation", "evaluation_s"), ("start-up", "startup_s"))
        shares = ", ".join(f"{sum(row[key] for row in timed) / total:.1%} {name}" for name, key in parts)
        yield f"speed: {mean(row['samples_per_s'] for row in timed):,.0f} samples/s; of the time on the clock {shares}"
    if efficiencies := [row["load_efficiency"] for row in results if row["load_efficiency"] is not None]:
        yield f"balance: load efficiency {mean(efficiencies):.1%} (mean over slowest rank)"
    for row in results:
        if row["straggler"]:
            yield f"straggler: {cell(Path(row['log']).stem)}: {Straggler(**row['straggler']).text()}"


def _samples(content: dict[str, Any]) -> Iterator[str]:
    """Yield how the samples were counted where epoch_num, which MLPerf's rules ask for, counts none."""
    logs = defaultdict[str | None, list[str]](list)
    for row in content["runs"]:
        if row["evaluations"] and row["samples_from"] != EPOCH_NUM:
            logs[row["samples_from"]].append(cell(Path(row["log"]).stem))
    for source, names in logs.items():
        taken = "nothing else in the log gives them" if source is None else f"taken from {source}"
        yield f"samples: epoch_num counts none in {', '.join(names)}; {taken}"


def judged_lines(content: dict[str, Any]) -> list[str]:
    """Return what the judge finds: what decides in single logs, all across runs, and a last line that counts."""
    lines = [
        finding_text(Path(row["log"]).name, finding)
        for row in content["runs"]
        for finding in row["findings"]
        if row["is_log"] and finding.severity == "error"
    ]
    lines += [no_log_text(row["log"], row["findings"][0]) for row in content["runs"] if not row["is_log"]]
    if len(lines) > _MOST_FINDINGS:
        lines = [*lines[:_MOST_FINDINGS], f"and {len(lines) - _MOST_FINDINGS:,} more in single logs"]
    lines += [finding_text("across runs", finding) for finding in content["findings"]]
    return [*lines, verdict_line(content)]


def verdict_line(content: dict[str, Any]) -> str:
    """Return how many logs pass, and the number of findings in single logs and across them."""
    runs, across = content["runs"], len(content["findings"])
    judged = sum(row["verdict"] is not None for row in runs)
    findings = sum(len(row["findings"]) for row in runs) + across
    line = f"{content['passed']} of {judged} logs pass by ruleset {' or '.join(content['rulesets'])}"
    if judged < len(runs):
        line += f", {len(runs) - judged} not judged (unfinished, or no result)"
    if not findings:
        return f"{line}; no findings"
    number = "1 finding" if findings == 1 else f"{findings:,} findings"
    where = "" if not across else " across runs" if across == findings else f", {across} of them across runs"
    return f"{line}; {number}{where}: `bertbench judge` lists them"


def text(content: dict[str, Any], detailed: bool) -> str:
    """Return the output of `report` for an object of `summarized`; `detailed` adds a table for each detail."""
    lines = [title(content["system"], content["settings"]), *aligned(*text_rows(content)), *remarks(content)]
    for found in details(content) if detailed else ():
        lines += [found.caption, *aligned(found.header, found.rows)]
    return "\n".join([*lines, *judged_lines(content)])
