"""Mutated logs, judged in this process: `python -m tests.compliance.fuzz [NUMBER [SEED]]` prints the verdicts."""

import io
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compliance.judge import judge_stream
from tests.compliance.logs import Record, closed, demo, line, with_own_keys

RULESETS = ("0.7.0", "2.0.0", "3.1.0", "5.0.0", "5.1.0")
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, 0.72, 1.0, 1e308, -1e-308, float("nan"), float("inf"), float("-inf"), 10**400,
    2**63, "", "closed", "open", "bert", "common", "resnet", "../x", "{}", "{0.__class__}", "__import__('os')", "\0",
    "\ud800", "\u2028", "x" * 5000, [], [1], [[]], {}, {"epoch_num": 1}, {"status": "success"}, [None] * 50,
    "1700000000000", 1.7e9, 40_000, [{}] * 400, {"layers": 2},
)  # fmt: skip
KEYS = (
    "run_start", "run_stop", "init_start", "init_stop", "eval_accuracy", "block_start", "submission_division",
    "submission_benchmark", "seed", "global_batch_size", "bertbench_model", "eval_start",
    "submission_org", "weights_initialization", "train_samples", "x", "",
)  # fmt: skip
BYTES = (b"\0", b"\xff", b"\xfe\xff", b"\r", b"\n", b"\r\n", b":::MLLOG ", b":::MLLOG", b"{", b"}", b"[", b'"', b"\\")


def fuzz(chance: random.Random, number: int) -> Counter[str]:
    """Verdicts on so many mutated logs; raises what the judge raises."""
    verdicts: Counter[str] = Counter()
    for done in range(number):
        if done and done % 10_000 == 0:
            print(f"{done:,} logs: {dict(verdicts)}", file=sys.stderr)
        content = mutated(chance)
        ruleset = chance.choice(RULESETS)
        try:
            judgement = judge_stream(Path("fuzzed"), io.BytesIO(content), ruleset)
            json.dumps(judgement.as_json())
        except BaseException:
            Path("fuzz-crash.txt").write_bytes(content)
            raise
        assert all(finding.found and finding.rule for finding in judgement.findings)
        verdicts[judgement.verdict] += 1
    return verdicts


def mutated(chance: random.Random) -> bytes:
    """One log, some records of which were changed, and then some of its bytes."""
    records: list[Any] = chance.choice((demo, closed, _own))()[: chance.choice((60, 200, 200, 200))]
    for _ in range(chance.randrange(4)):
        chance.choice(RECORD_MUTATIONS)(chance, records)
    content = bytearray("".join(_line(record) for record in records), "utf-8", "surrogatepass")
    for _ in range(chance.choice((0, 0, 1, 3))):
        chance.choice(BYTE_MUTATIONS)(chance, content)
    return bytes(content)


def _own() -> list[Any]:
    return with_own_keys(closed())


def _line(record: Any) -> str:
    return line(record) + "\n"


def _value(chance: random.Random, records: list[Record]) -> None:
    record = chance.choice(records)
    if isinstance(record, dict):
        record[chance.choice(("value", "key", "time_ms", "metadata"))] = chance.choice(VALUES)


def _metadata(chance: random.Random, records: list[Record]) -> None:
    metadata = chance.choice(records).get("metadata")
    if isinstance(metadata, dict):
        field = ("epoch_num", "first_epoch_num", "epoch_count", "samples_count", "status", "tensor", "lineno")
        metadata[chance.choice(field)] = chance.choice(VALUES)


def _no_field(chance: random.Random, records: list[Record]) -> None:
    record = chance.choice(records)
    record.pop(chance.choice(("value", "key", "time_ms", "metadata", "namespace")), None)


def _key(chance: random.Random, records: list[Record]) -> None:
    chance.choice(records)["key"] = chance.choice(KEYS)


def _remove(chance: random.Random, records: list[Record]) -> None:
    if len(records) > 1:
        del records[chance.randrange(len(records))]


def _repeat(chance: random.Random, records: list[Record]) -> None:
    records.insert(chance.randrange(len(records)), dict(chance.choice(records)))


def _shuffle(chance: random.Random, records: list[Record]) -> None:
    chance.shuffle(records)


def _time(chance: random.Random, records: list[Record]) -> None:
    record = chance.choice(records)
    if isinstance(record.get("time_ms"), int | float):
        record["time_ms"] = record["time_ms"] * chance.choice((0, -1, 1e-3, 1e3, 1e300)) + chance.randrange(10**7)


def _byte(chance: random.Random, content: bytearray) -> None:
    if content:
        content[chance.randrange(len(content))] = chance.randrange(256)


def _insert(chance: random.Random, content: bytearray) -> None:
    at = chance.randrange(len(content) + 1)
    content[at:at] = chance.choice(BYTES) * chance.choice((1, 1, 2, 70))


def _cut(chance: random.Random, content: bytearray) -> None:
    del content[chance.randrange(len(content) + 1) :]


def _hole(chance: random.Random, content: bytearray) -> None:
    at = chance.randrange(len(content) + 1)
    del content[at : at + chance.randrange(400)]


RECORD_MUTATIONS: tuple[Callable[[random.Random, list[Record]], None], ...] = (
    _value, _value, _metadata, _no_field, _key, _remove, _repeat, _shuffle, _time,
)  # fmt: skip
BYTE_MUTATIONS: tuple[Callable[[random.Random, bytearray], None], ...] = (_byte, _insert, _cut, _hole)


if __name__ == "__main__":
    count, seed = (int(one) for one in (*sys.argv[1:], "100000", "13")[:2])
    print(dict(fuzz(random.Random(seed), count)))
