"""Every broken log is found, with its rule and its line."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from compliance.judge import judge
from tests.compliance.broken_logs import TABLE, Broken
from tests.compliance.forgeries import LOGS, Forgery
from tests.compliance.logs import at, closed, demo, line, official_verdict, text, with_own_keys, write
from tests.compliance.mutations import none_reaching, reaching_after_run_stop, without


@pytest.mark.parametrize("broken", TABLE, ids=lambda broken: broken.name)
def test_every_broken_log_is_found_with_its_rule_and_line(tmp_path: Path, broken: Broken) -> None:
    records = broken.change(with_own_keys(closed()))
    path = write(tmp_path / "result_0.txt", records)
    judgement = judge(path, "5.0.0")
    expected = None if broken.key is None else at(records, broken.key, broken.nth) + 1
    found = (*judgement.findings, *judgement.notes)
    assert (broken.rule, expected) in {(finding.rule, finding.line) for finding in found}
    assert judgement.verdict == broken.expected
    assert all(finding.found and finding.expected and finding.remedy for finding in found)
    if not {"common", "../training_4.1.0/closed"} & {broken.name.partition(" ")[2]}:  # it would load them, and loop
        assert judgement.official.verdict == official_verdict(path, "5.0.0")


class Damaged(NamedTuple):
    """A log's text, damaged; `line` as in Broken, -1 for the last."""

    name: str
    verdict: str
    rule: str
    line: int | None
    change: Callable[[str], str | bytes]


def on(number: int, change: Callable[[str], str]) -> Callable[[str], str]:
    def changed(content: str) -> str:
        lines = content.split("\n")
        lines[number - 1] = change(lines[number - 1])
        return "\n".join(lines)

    return changed


def instead(record: str) -> Callable[[str], str]:
    return lambda _: f":::MLLOG {record}"


TEXTS = [
    Damaged("last line cut", "fail", "record", -1, lambda content: content[:-40]),
    Damaged("cut between lines", "fail", "run-whole", None, lambda content: content[: content.rindex(":::")]),
    Damaged("two records in a line", "warning", "record-read", 8,
            lambda content: "\n".join(content.split("\n")[:7]) + "\n" + " ".join(content.split("\n")[7:9]) + "\n"
            + "\n".join(content.split("\n")[9:])),
    Damaged("no blank after the token", "fail", "record-read", 3, on(3, lambda one: one.replace("LOG ", "LOG"))),
    Damaged("a record that is a list", "fail", "record", 3, on(3, instead("[1]"))),
    Damaged("a record that is null", "fail", "record", 3, on(3, instead("null"))),
    Damaged("a record without a value", "fail", "record", 3,
            on(3, instead('{"time_ms": 1, "key": "x", "metadata": {}}'))),
    Damaged("a record without fields", "fail", "record", 3, on(3, instead("{}"))),
    Damaged("an empty record", "fail", "record", 3, on(3, instead(""))),
    Damaged("single quotes", "fail", "record", 3, on(3, lambda one: one.replace('"', "'"))),
    Damaged("a field twice", "cannot-judge", "record-unambiguous", 9,
            on(9, lambda one: one.replace('"value"', '"value": 7, "value"'))),
    Damaged("a field of the metadata twice", "cannot-judge", "record-unambiguous", 9,
            on(9, lambda one: one.replace('"file"', '"file": 7, "file"'))),
    Damaged("NUL in a record", "cannot-judge", "text", 9, on(9, lambda one: "\0" + one)),
    Damaged("a hole", "warning", "text-hole", 9, on(9, lambda one: "\0" * 512 + "\n" + one)),
    Damaged("deep JSON", "cannot-judge", "readable", 9, on(9, instead("[" * 100_000))),
    Damaged("rather deep JSON", "cannot-judge", "readable", 9, on(9, instead('{"a":' * 80 + "1" + "}" * 80))),
    Damaged("an integer of 5,000 digits", "fail", "record", 9, on(9, lambda one: one.replace("448", "1" * 5000))),
    Damaged("an endless record", "cannot-judge", "readable", 9, on(9, instead("x" * (2 << 20)))),
    Damaged("UTF-16", "cannot-judge", "readable", None, lambda content: content.encode("utf-16")),
    Damaged("UTF-16 without a mark", "cannot-judge", "readable", None, lambda content: content.encode("utf-16-le")),
    Damaged("gzip", "cannot-judge", "readable", None, lambda content: gzip.compress(content.encode())),
    Damaged("empty", "cannot-judge", "readable", None, lambda _: ""),
    Damaged("another text", "cannot-judge", "readable", None, lambda _: "hello\n"),
]  # fmt: skip


@pytest.mark.parametrize("damaged", TEXTS, ids=lambda damaged: damaged.name)
def test_damaged_text_is_found_with_its_line(tmp_path: Path, damaged: Damaged) -> None:
    content = text(closed())
    judgement = judge(write(tmp_path / "result_0.txt", damaged.change(content)), "5.0.0")
    blamed = content.count("\n") if damaged.line == -1 else damaged.line
    assert (damaged.rule, blamed) in {(finding.rule, finding.line) for finding in judgement.findings}
    assert judgement.verdict == ("pass" if damaged.verdict == "warning" else damaged.verdict)


def test_an_error_is_shown_however_many_warnings_stand_before_it(tmp_path: Path) -> None:
    records = closed()
    for index in range(10):
        records[at(records, "eval_start", index)]["time_ms"] = -1
    records[at(records, "run_stop")]["time_ms"] *= 1000
    judgement = judge(write(tmp_path / "result_0.txt", records), "5.0.0")
    times = [(finding.severity, finding.line) for finding in judgement.findings if finding.rule == "time"]
    assert len(times) == 5
    assert times[-1] == ("error", at(records, "run_stop") + 1)


def test_a_closed_log_of_ours_tells_all_and_another_what_it_does_not(tmp_path: Path) -> None:
    told = judge(write(tmp_path / "result_0.txt", with_own_keys(closed())), "5.0.0", strict=True)
    assert (told.verdict, told.findings, told.notes) == ("pass", (), ())
    foreign = judge(write(tmp_path / "result_1.txt", closed()), "5.0.0", strict=True)
    assert (foreign.verdict, foreign.findings, foreign.notes) == ("pass", (), ())
    unknown = dict(foreign.not_applied)["reference-value"]
    assert "clip norm, power of the decay, predictions a sample, clip mode, compression" in unknown


def test_an_open_run_is_evaluated_on_the_clock_too(tmp_path: Path) -> None:
    judgement = judge(write(tmp_path / "result_0.txt", reaching_after_run_stop(demo())), "5.0.0")
    assert ("on-clock", len(demo())) in {(finding.rule, finding.line) for finding in judgement.findings}


def test_an_open_run_says_its_batch(tmp_path: Path) -> None:
    judgement = judge(write(tmp_path / "result_0.txt", without("global_batch_size")(demo())), "5.0.0")
    assert [(finding.rule, finding.severity) for finding in judgement.findings] == [("batch-size", "warning")]


def test_a_miss_of_the_target_says_how_far_it_is_off_and_where(tmp_path: Path) -> None:
    records = none_reaching(closed())
    judgement = judge(write(tmp_path / "result_0.txt", records), "5.0.0")
    (missed,) = [finding for finding in judgement.findings if finding.rule == "target"]
    best = at(records, "eval_accuracy", -1)
    assert missed.line == best + 1
    assert missed.found == "best accuracy 0.71530 after 2,101,120 samples, 0.00470 short"
    assert missed.expected == "accuracy 0.72"


def test_lines_are_those_of_the_file_not_of_its_records(tmp_path: Path) -> None:
    lines = [f"{number % 8}: noise\n{line(record)}" for number, record in enumerate(none_reaching(closed()))]
    judgement = judge(write(tmp_path / "result_0.txt", "Starting\r10 %\r20 %\n" + "\n".join(lines)), "5.0.0")
    (missed,) = [finding for finding in judgement.findings if finding.rule == "target"]
    assert missed.line == 1 + 2 * (at(none_reaching(closed()), "eval_accuracy", -1) + 1)


@pytest.mark.parametrize("forgery", LOGS, ids=lambda forgery: forgery.name)
def test_no_forgery_passes_in_silence(tmp_path: Path, forgery: Forgery) -> None:
    judgement = judge(write(tmp_path / "result_0.txt", forgery.change(closed())), "5.0.0")
    assert (forgery.rule, forgery.severity) in {(finding.rule, finding.severity) for finding in judgement.findings}
