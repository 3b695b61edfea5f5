"""Mutated logs, judged in this process."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

from compliance.judge import judge_log
from compliance.read.record import as_json
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
FIELDS = ("epoch_num", "first_epoch_num", "epoch_count", "samples_count", "status", "tensor", "lineno")
BYTES = (b"\0", b"\xff", b"\xfe\xff", b"\r", b"\n", b"\r\n", b":::MLLOG ", b":::MLLOG", b"{", b"}", b"[", b'"', b"\\")


def fuzz(chance: random.Random, number: int, log: Path) -> Counter[str]:
    """Verdicts on so many mutated logs; raises what the judge raises."""
    verdicts: Counter[str] = Counter()
    for _ in range(number):
        content = mutated(chance)
        ruleset = chance.choice(RULESETS)
        try:
            log.write_bytes(content)
            judgement = judge_log(log, ruleset)
            as_json(judgement.as_json())
        except BaseException:
            log.rename("fuzz-crash.txt")
            raise
        assert all(breach.found and breach.rule.id for breach in judgement.breaches)
        verdicts[judgement.verdict] += 1
    return verdicts


def mutated(chance: random.Random) -> bytes:
    """Return a log with some records changed, and then some bytes."""
    make = chance.choice((demo, closed, lambda: with_own_keys(closed())))
    records: list[Any] = make()[: chance.choice((60, 200, 200, 200))]
    for _ in range(chance.randrange(4)):
        _change(chance, records)
    content = bytearray("".join(line(record) + "\n" for record in records), "utf-8", "surrogatepass")
    for _ in range(chance.choice((0, 0, 1, 3))):
        at = chance.randrange(len(content) + 1)
        end = chance.choice((at, at + 1, at + chance.randrange(400), len(content)))
        content[at:end] = chance.choice((b"", *BYTES, bytes([chance.randrange(256)]))) * chance.choice((1, 1, 2, 70))
    return bytes(content)


def _change(chance: random.Random, records: list[Record]) -> None:
    """Change a field or the time of a record, or remove, repeat or shuffle records."""
    record = chance.choice(records)
    metadata = record.get("metadata")
    match chance.randrange(7):
        case 0 | 1:
            record[chance.choice(("value", "key", "time_ms", "metadata"))] = chance.choice((*VALUES, *KEYS))
        case 2 if isinstance(metadata, dict):
            metadata[chance.choice(FIELDS)] = chance.choice(VALUES)
        case 3:
            record.pop(chance.choice(("value", "key", "time_ms", "metadata", "namespace")), None)
        case 4 if len(records) > 1:
            records.remove(record)
        case 5:
            records.insert(chance.randrange(len(records)), dict(record))
        case 6 if isinstance(record.get("time_ms"), int | float):
            record["time_ms"] = record["time_ms"] * chance.choice((0, -1, 1e-3, 1e3, 1e300)) + chance.randrange(10**7)
        case _:
            chance.shuffle(records)
