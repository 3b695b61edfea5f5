"""Derive the pages' claims from the numbers of the records in results/: one row for each claim."""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bertbench.common.tables import markdown
from bertbench.runs.run_summary import read_summary
from docs.site.bench_claims import OF_BENCH
from docs.site.claim import Claim, Record
from docs.site.gpu_rates import OURS_BY_STEP, OURS_BY_TIME, part_of, replay_ms, run_rate
from docs.site.records import RESULTS, link, read
from docs.site.study_claims import optimizer_claims, study_claims

_OPTIMIZER_STUDY = RESULTS / "studies" / "optimizer.json"
SIMULATED = RESULTS / "simulated" / "balance.json"
_CLAIMED_METHODS = ("none", "stratified_presort", "planned")


class Origin(NamedTuple):
    """A record, and the machine, commit and command that made it."""

    record: str
    machine: str
    commit: str
    command: str


def claims() -> str:
    """Return the table of claims; records with equal claims share a row."""
    records: dict[Claim, list[str]] = {}
    for origin, claims_of_record in _claims_by_record():
        for claim in claims_of_record:
            records.setdefault(claim, []).append(origin.record)
    rows = [[*claim, ", ".join(links)] for claim, links in records.items()]
    return markdown(["claim", "figure", "95 % interval", "seeds", "record"], rows)


def origins() -> str:
    """Return the table of the records that claims rest on."""
    rows = [[*origin] for origin, _ in _claims_by_record()]
    return markdown(["record", "machine", "commit", "command"], rows)


def _claims_by_record() -> Iterator[tuple[Origin, list[Claim]]]:
    yield _of_demo()
    yield from _of_gpu()
    for kind, claims_of_kind in OF_BENCH.items():
        for path in sorted((RESULTS / "bench").glob("*/*.json")):
            if path.stem.split("_")[0] == kind:  # exchange_5ms is another `exchange`
                record = read(path)
                yield _origin([record], record["command"], path), [*claims_of_kind(record)]
    for path in sorted((RESULTS / "studies").glob("*.json")):
        study = read(path)
        found = optimizer_claims(study) if path == _OPTIMIZER_STUDY else study_claims(path.stem, study)
        yield _origin(study["origins"], f"bertbench lab study {path.stem}", path), [*found]
    yield _of_simulation()


def _origin(origins: Sequence[Record], command: str, path: Path) -> Origin:
    machines = dict.fromkeys(origin["processor"] for origin in origins)
    commits = dict.fromkeys(origin["commit"][:8] for origin in origins)
    return Origin(link(path), ", ".join(machines), ", ".join(commits), f"`{command}`")


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


def _of_gpu() -> Iterator[tuple[Origin, list[Claim]]]:
    (demo,) = part_of(OURS_BY_TIME, "demo")["rows"]
    whole_runs = [
        Claim("Samples/s of BERT-Large on one GPU, 200 steps of 96 made-up samples", f"{run_rate():,.0f}", seeds="1"),
        Claim("Seconds of the demo to its target on one GPU", f"{demo['time_to_train_s']:.1f}", seeds="1"),
    ]
    replayed = "Milliseconds of a replayed step of BERT-Large on one GPU, 96 samples, without waiting for host and data"
    step = Claim(replayed, f"{replay_ms():.0f}")
    for path, claims_of_record in ((OURS_BY_TIME, whole_runs), (OURS_BY_STEP, [step])):
        commit = path.stem.rpartition("_")[2]
        (machine,) = read(path)["machine"]["gpus"]
        record = f"[{path.stem}]({path.relative_to(RESULTS)})"
        yield Origin(record, machine, commit, "`benchmarks/bert/gpu_check.sh`"), claims_of_record


def _of_simulation() -> tuple[Origin, list[Claim]]:
    command = "bertbench balance --seed 1"
    found = []
    for row in read(SIMULATED)[command]:
        if (row["gpus"], row["local_batch"]) == (1024, 16) and row["method"] in _CLAIMED_METHODS:
            text = f"Load efficiency of `{row['method']}`, 1,024 GPUs with 16 samples each"
            found.append(Claim(text, f"{row['load_efficiency']:.4f}", seeds="1"))
    return Origin(link(SIMULATED), "simulated", "", f"`{command}`"), found
