"""Logs of published results, MLPerf Training 0.7 to 5.0, of many submitters and loggers.

published/<round>.txt has them as they were printed, one event per line: time in ms, key, value, and metadata without
file and line number. `= submitter/system number` begins a log. Left out are weights_initialization, repetitions by
other ranks, event types, and settings of later runs of a result (`as` its first one), which `logs` fills in.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.compliance.logs import Record, at, tensors

FOLDER = Path(__file__).with_suffix("")
_LISTS_TENSORS = ("1.1.0", "2.0.0", "2.1.0")
_DECODER = json.JSONDecoder()


class PublishedLog(NamedTuple):
    """One log; `result` is its round, submitter and system."""

    result: str
    ruleset: str
    records: list[Record]


@cache
def logs() -> dict[str, PublishedLog]:
    """Return all logs by result and number. The records are shared; copy them before you change them."""
    found: dict[str, PublishedLog] = {}
    for path in sorted(FOLDER.glob("*.txt")):
        for text in re.split(r"^= ", path.read_text(), flags=re.MULTILINE)[1:]:
            title, *lines = text.splitlines()
            system, number, *first = title.split()
            result, ruleset = f"{path.stem} {system}", f"{path.stem}.0"
            records = [_record(line) for line in lines]
            if first:
                records = _with_settings(records, found[f"{result} {first[-1]}"].records)
            elif ruleset in _LISTS_TENSORS:
                start = at(records, "run_start")
                lists = {"key": "weights_initialization", "value": None, "time_ms": records[start]["time_ms"]}
                records[start:start] = [{**lists, "metadata": {"tensor": name}} for name in tensors(ruleset)]
            found[f"{result} {number}"] = PublishedLog(result, ruleset, records)
    return found


def _record(line: str) -> Record:
    time, key, rest = line.split(" ", 2)
    value, end = _DECODER.raw_decode(rest)
    return {"time_ms": int(time), "key": key, "value": value, "metadata": json.loads(rest[end:] or "{}")}


def _with_settings(records: list[Record], first: list[Record]) -> list[Record]:
    """Return a later run, with the settings that it lacks from the first run, at times shifted by run_start."""
    start, first_start = at(records, "run_start"), at(first, "run_start")
    later = records[start]["time_ms"] - first[first_start]["time_ms"]
    given = {record["key"] for record in records[:start]}
    filled = [{**one, "time_ms": one["time_ms"] + later} for one in first[:first_start] if one["key"] not in given]
    return sorted(filled + records[:start], key=lambda record: record["time_ms"]) + records[start:]
