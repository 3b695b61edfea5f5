"""Derive the pages' claims from the numbers of the records in results/: one row for each claim."""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bertbench.common.tables import markdown
from bertbench.runs.run_summary import read_summary
from docs.site.bench_claims import OF_BENCH
from docs.site.claim import Claim, Record
from docs.site.records import RESULTS, link, read
from docs.site.study_claims import optimizer_claims, study_claims

OPTIMIZER_STUDY = RESULTS / "studies" / "optimizer.json"
SIMULATED = RESULTS / "simulated" / "balance.json"
_CLAIMED_METHODS = ("none", "stratified_presort", "planned")


class Origin(NamedTuple):
    """The other cells of a row: the machine, commit and command that made a record, and the record."""

    machine: str
    commit: str
    command: str
    record: str


def claims() -> str:
    """Return the table of claims; the rows of a record follow each other, and the first one names its origin."""
    rows = []
    for origin, claims_of_record in _claims_by_record():
        for number, claim in enumerate(claims_of_record):
            repeated = Origin("", "", "", "")
            rows.append([*claim, *(repeated if number else origin)])
    heads = ["claim", "figure", "95 % interval", "seeds", "machine", "commit", "command", "record"]
    return markdown(heads, rows)


def _claims_by_record() -> Iterator[tuple[Origin, list[Claim]]]:
    yield _of_demo()
    for path in sorted((RESULTS / "bench").glob("*/*.json")):
        record = read(path)
        kind, *_ = path.stem.split("_")  # exchange_5ms is another `exchange`
        yield _origin([record], record["command"], path), [*OF_BENCH[kind](record)]
    for path in sorted((RESULTS / "studies").glob("*.json")):
        study = read(path)
        of_study = optimizer_claims if path == OPTIMIZER_STUDY else study_claims
        yield _origin(study["origins"], f"bertbench lab study {path.stem}", path), [*of_study(study)]
    yield _of_simulation()


def _origin(origins: Sequence[Record], command: str, path: Path) -> Origin:
    machines = dict.fromkeys(origin["processor"] for origin in origins)
    commits = dict.fromkeys(origin["commit"][:8] for origin in origins)
    return Origin(", ".join(machines), ", ".join(commits), f"`{command}`", link(path))


def _of_demo() -> tuple[Origin, list[Claim]]:
    logs = sorted((RESULTS / "cpu_demo" / "bert").glob("result_*.txt"))
    runs = [*map(read_summary, logs)]
    measures = {
        "Seconds": ([run.time_to_train_s or 0 for run in runs], ".1f"),
        "Samples": ([run.samples or 0 for run in runs], ",.0f"),
    }
    found = []
    for name, (values, form) in measures.items():
        least_and_most = f"range {min(values):{form}} to {max(values):{form}}"
        mean = f"{statistics.mean(values):{form}}"
        found.append(Claim(f"{name} of the demo to its target", mean, least_and_most, str(len(runs))))
    origins = [read(log.with_suffix("") / "run.json") for log in logs]
    return _origin(origins, f"./run_and_time.sh cpu_demo --runs {len(runs)}", logs[0].parent), found


def _of_simulation() -> tuple[Origin, list[Claim]]:
    command = "bertbench balance --seed 1"
    found = []
    for row in read(SIMULATED)[command]:
        if (row["gpus"], row["local_batch"]) == (1024, 16) and row["method"] in _CLAIMED_METHODS:
            text = f"Load efficiency of `{row['method']}`, 1,024 GPUs with 16 samples each"
            found.append(Claim(text, f"{row['load_efficiency']:.4f}", seeds="1"))
    return Origin("simulated", "", f"`{command}`", link(SIMULATED)), found
