"""Every broken log is found, with its rule and its line."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compliance.judge import judge
from tests.compliance.broken_logs import TABLE, Broken
from tests.compliance.forgeries import LOGS, Forgery
from tests.compliance.logs import (
    at,
    closed,
    demo,
    judged,
    line,
    official_verdict,
    places,
    text,
    with_own_keys,
    write,
)
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


RECORD = r"\{.*"
# Verdict, rule, and what is replaced in line 9, the global batch size.
LINES = [
    ("fail", "record-read", "\n", " "),
    ("fail", "record-read", "LOG ", "LOG"),
    *(("fail", "record", RECORD, record)
      for record in ("[1]", "null", "{}", "", "{'value': 1}", '{"time_ms": 1, "key": "x", "metadata": {}}')),
    ("fail", "record", "448", "1" * 5000),
    ("cannot-judge", "record-unambiguous", '"value"', '"value": 7, "value"'),
    ("cannot-judge", "record-unambiguous", '"file"', '"file": 7, "file"'),
    ("cannot-judge", "text", "^", "\0"),
    ("pass", "text-hole", "^", "\0" * 512 + "\n"),
    *(("cannot-judge", "readable", RECORD, record)
      for record in ("[" * 100_000, '{"a":' * 80 + "1" + "}" * 80, "x" * (2 << 20))),
]  # fmt: skip


@pytest.mark.parametrize(("verdict", "rule", "old", "new"), LINES, ids=lambda part: part[:40])
def test_a_damaged_line_is_found(tmp_path: Path, verdict: str, rule: str, old: str, new: str) -> None:
    lines = text(closed()).splitlines(True)
    damaged = re.sub(old, lambda _: new, "".join(lines[8:]), count=1)
    judgement = judged(tmp_path, "".join(lines[:8]) + damaged)
    assert (rule, 9) in places(judgement)
    assert judgement.verdict == verdict


def test_a_cut_log_fails_with_its_last_line_or_what_it_lacks(tmp_path: Path) -> None:
    content = text(closed())
    for cut, found in ((-40, ("record", content.count("\n"))), (content.rindex(":::"), ("official", None))):
        judgement = judged(tmp_path, content[:cut])
        assert judgement.verdict == "fail"
        assert found in places(judgement)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda content: content.encode("utf-16"), "UTF-16 text"),
        (lambda content: content.encode("utf-16-le"), "binary data, or UTF-16 text"),
        (lambda content: gzip.compress(content.encode()), "gzip data"),
        (lambda _: "", "an empty file"),
        (lambda _: "hello\n", "text without MLPerf lines"),
    ],
)
def test_what_is_no_log_cannot_be_judged(tmp_path: Path, change: Callable[[str], str | bytes], found: str) -> None:
    judgement = judged(tmp_path, change(text(closed())))
    assert (judgement.verdict, [finding.rule for finding in judgement.findings]) == ("cannot-judge", ["readable"])
    assert f"found {found};" in judgement.findings[0].found


def test_an_error_is_shown_however_many_warnings_stand_before_it(tmp_path: Path) -> None:
    records = closed()
    for index in range(10):
        records[at(records, "eval_start", index)]["time_ms"] = -1
    records[at(records, "run_stop")]["time_ms"] *= 1000
    judgement = judged(tmp_path, records)
    times = [(finding.severity, finding.line) for finding in judgement.findings if finding.rule == "time"]
    assert len(times) == 5
    assert times[-1] == ("error", at(records, "run_stop") + 1)


def test_a_closed_log_of_ours_tells_all_and_another_what_it_does_not(tmp_path: Path) -> None:
    for records in (with_own_keys(closed()), closed()):
        found = judged(tmp_path, records, strict=True)
        assert (found.verdict, found.findings, found.notes) == ("pass", (), ())
    unknown = dict(found.not_applied)["reference-value"]
    assert "clip norm, power of the decay, predictions a sample, clip mode, compression" in unknown


def test_an_open_run_is_evaluated_on_the_clock_and_says_its_batch(tmp_path: Path) -> None:
    assert ("on-clock", len(demo())) in places(judged(tmp_path, reaching_after_run_stop(demo())))
    judgement = judged(tmp_path, without("global_batch_size")(demo()))
    assert [(finding.rule, finding.severity) for finding in judgement.findings] == [("batch-size", "warning")]


def test_a_miss_of_the_target_says_how_far_it_is_off_and_on_which_line_of_the_file(tmp_path: Path) -> None:
    records = none_reaching(closed())
    lines = [f"{number % 8}: noise\n{line(record)}" for number, record in enumerate(records)]
    judgement = judged(tmp_path, "Starting\r10 %\r20 %\n" + "\n".join(lines))
    (missed,) = [finding for finding in judgement.findings if finding.rule == "target"]
    assert missed.line == 1 + 2 * (at(records, "eval_accuracy", -1) + 1)
    assert missed.found == "best accuracy 0.71530 after 2,101,120 samples, 0.00470 short"
    assert missed.expected == "accuracy 0.72"


@pytest.mark.parametrize("forgery", LOGS, ids=lambda forgery: forgery.name)
def test_no_forgery_passes_in_silence(tmp_path: Path, forgery: Forgery) -> None:
    judgement = judged(tmp_path, forgery.change(closed()))
    assert (forgery.rule, forgery.severity) in {(finding.rule, finding.severity) for finding in judgement.findings}
