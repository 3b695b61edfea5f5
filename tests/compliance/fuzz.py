"""Mutate logs at random: whole records first, then bytes."""

import random
from typing import Any

from tests.compliance.logs import Record, closed, demo, line, with_own_keys

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


def mutated_log(chance: random.Random) -> bytes:
    """Return a log with up to three changes of records, one time in two with one or three changes of bytes as well.

    One time in four it has no end.
    """
    records = chance.choice((demo, closed, _closed_with_own_keys))()
    if chance.random() < 0.25:
        records = records[:60]
    for _ in range(chance.randrange(4)):
        _change_record(chance, records)
    content = bytearray("".join(line(record) + "\n" for record in records), "utf-8", "surrogatepass")
    for _ in range(chance.choice((0, 0, 1, 3))):
        _change_bytes(chance, content)
    return bytes(content)


def _closed_with_own_keys() -> list[Record]:
    return with_own_keys(closed())


def _change_record(chance: random.Random, records: list[Record]) -> None:
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
            factor = chance.choice((0, -1, 1e-3, 1e3, 1e300))
            record["time_ms"] = record["time_ms"] * factor + chance.randrange(10**7)
        case _:
            chance.shuffle(records)


def _change_bytes(chance: random.Random, content: bytearray) -> None:
    """Put other bytes, or none, in place of a part of a log, which may be empty and may reach to its end."""
    start = chance.randrange(len(content) + 1)
    end = chance.choice((start, start + 1, start + chance.randrange(400), len(content)))
    any_byte = bytes([chance.randrange(256)])
    inserted = chance.choice((b"", *BYTES, any_byte))
    times = chance.choice((1, 1, 2, 70))
    content[start:end] = inserted * times
