"""Run the official mlperf-logging checker in this process: safely, quietly, and faster than on its own.

The checker's rules are Python code in YAML files, and it builds the path of the next file from the log's division and
benchmark. So we make sure that both name rule files of the ruleset before the checker sees a log. No other value of a
log can become code: values are only compared. The checker runs in a private copy of its module. The copy keeps rule
files and compiled rules between logs, writes nothing to the root logger, and leaves dumps of its state out of messages.
"""

import builtins
import importlib.util
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import IO, Any, Literal, NamedTuple

import yaml

from compliance.read.description import DIVISIONS
from compliance.read.log import CannotJudge, Log
from compliance.read.record import Record
from compliance.read.run import RunFacts

Verdict = Literal["pass", "fail", "error"]

PARSING_ERRORS = "Log lines had parsing errors."
_CHECKER = "mlperf_logging.compliance_checker"

# Limits on the values that the checker keeps until the end of a log; published logs have short ones.
_LONG_RECORD = 1 << 10
_MOST_LONG_TEXT = 16 << 20

_MOST_RULED_IN_MEMORY = 2_000
"""Most records with rules that are kept of a log that isn't in memory, because rereading it takes seconds."""
_LONGEST_TEXT = 160  # characters of a message; one rule lists 398 tensors

_AT_LINE = re.compile(r"\bline (\d+)")
_FAILED_TEST = re.compile(r"failed test: (.*)")
_KEY = re.compile(r"(?:occurrence of '|checks for )(\w+)")
_CODE = re.compile(r"Failed executing CHECK code:\n(.*)")
_CHECKS = re.compile(r"Failed checks for (\w+) : (.*)", re.DOTALL)
_ALTERNATIVES = re.compile(r"Required AT_LEAST_ONE occurrence of ('\w+'(?: or '\w+')+)")
_REQUIRED = re.compile(r"Required (EXACTLY_ONE|AT_LEAST_ONE) occurrence of '(\w+)' but found (\d+)(.*)", re.DOTALL)
_NUMBERS = {"EXACTLY_ONE": "exactly one", "AT_LEAST_ONE": "at least one"}


class Message(NamedTuple):
    """One message of the checker, about a line or about the whole log."""

    text: str
    line: int | None = None
    key: str | None = None
    test: str | None = None  # what must be true: a condition of the checker, or a number of records


class OfficialVerdict(NamedTuple):
    """The official checker's verdict; `error` if the checker crashes or the log isn't safe to give it."""

    ruleset: str
    verdict: Verdict
    messages: tuple[Message, ...] = ()


@lru_cache(maxsize=1)
def rulesets() -> tuple[str, ...]:
    """Return the installed checker's training rulesets that have rules for BERT.

    The newest, 5.1.0, keeps its rules but no longer accepts the benchmark.
    """
    folders = (path.parent.name for path in _folder().glob("training_*/closed_bert.yaml"))
    return tuple(sorted(name.removeprefix("training_") for name in folders))


@lru_cache(maxsize=1)
def ruled_keys() -> frozenset[str]:
    """Return the keys that any ruleset has a rule for; the checker ignores records of other keys."""
    files = (path for ruleset in rulesets() for path in (_folder() / f"training_{ruleset}").glob("*.yaml"))
    return frozenset(rule["NAME"] for path in files for rule in _key_rules(path))


@lru_cache(maxsize=64)
def benchmarks(ruleset: str, division: str) -> frozenset[str]:
    """Return the benchmarks that a ruleset has rules for in a division."""
    prefix = f"{division}_"
    names = {path.stem.removeprefix(prefix) for path in (_folder() / f"training_{ruleset}").glob(f"{prefix}*.yaml")}
    return frozenset(names - {"common"})  # a benchmark `common` would make the checker load the same file for ever


@lru_cache(maxsize=64)
def required_keys(ruleset: str, division: str) -> frozenset[str]:
    """Return the keys that a ruleset requires in every BERT log of a division."""
    folder = _folder() / f"training_{ruleset}"
    files = (folder / f"{name}.yaml" for name in ("common", f"{division}_common", f"{division}_bert"))
    rules = [rule for path in files if path.is_file() for rule in _key_rules(path)]
    return frozenset(rule["NAME"] for rule in rules if rule.get("REQ") in ("EXACTLY_ONE", "AT_LEAST_ONE"))


def check(log: Log, facts: RunFacts, ruleset: str) -> OfficialVerdict:
    """Return the official verdict on a log. Raises CannotJudge if the log would fill the memory."""
    for line, reason in log.notes["crash"]:
        return OfficialVerdict(ruleset, "error", (Message(f"{reason}, on which the official checker crashes", line),))
    if unsafe := _unsafe(facts, ruleset):
        return OfficialVerdict(ruleset, "error", (unsafe,))
    module = _module()
    checker = module.make_checker("training", ruleset, quiet=False, werror=False)
    module.enqueued_configs.clear()  # a log on which the checker crashed leaves entries there
    if log.notes["record"]:
        checker.put_message(PARSING_ERRORS)
    try:
        checker.check_loglines(_Lines(log), f"training_{ruleset}/common.yaml")
    except CannotJudge:
        raise
    except Exception as error:  # the checker may raise anything on an unexpected log  # noqa: BLE001
        return OfficialVerdict(ruleset, "error", (Message(f"a log on which the official checker crashes: {error!r}"),))
    messages = [(text, key) for key, text in checker.overwritable.items()]
    messages += [(text, None) for text in checker.not_overwritable]
    verdict: Verdict = "fail" if messages else "pass"
    return OfficialVerdict(ruleset, verdict, tuple(_message(text, key) for text, key in messages))


@lru_cache(maxsize=256)
def place_of_rule(ruleset: str, division: str | None, key: str | None) -> str | None:
    """Return the file and line of a ruleset's rule for a key, such as training_5.0.0/closed_bert.yaml:2."""
    if division not in DIVISIONS or not key:
        return None
    for name in (f"{division}_bert", f"{division}_common", "common"):
        path = _folder() / f"training_{ruleset}" / f"{name}.yaml"
        if not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if line.split() == ["NAME:", key]:
                return f"{path.parent.name}/{path.name}:{number}"
    return None


class _Lines:
    """The log's records in the form that the checker needs; it iterates over them once for each rule file."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._few_ruled: list[Record] | None = None  # kept from the first iteration

    def __bool__(self) -> bool:
        return any(True for _ in self._log.records())

    def __iter__(self) -> Iterator[Record]:
        if self._log.in_memory:
            yield from self._log.records()
            return
        if self._few_ruled is not None:
            yield from self._few_ruled
            return
        ruled = ruled_keys()
        long_text = 0
        kept: list[Record] = []
        count = 0
        for record in self._log.records():
            if not isinstance(record.key, str) or record.key not in ruled:
                continue
            if isinstance(record.value["value"], str | list | dict):
                size = len(repr(record.value["value"]))
                if size > _LONG_RECORD:
                    long_text += size
                if long_text > _MOST_LONG_TEXT:
                    raise CannotJudge(f"found more than {_MOST_LONG_TEXT:,} characters in long values", record.lineno)
            count += 1
            if count <= _MOST_RULED_IN_MEMORY:
                kept.append(record)
            yield record
        if count <= _MOST_RULED_IN_MEMORY:
            self._few_ruled = kept


def _unsafe(facts: RunFacts, ruleset: str) -> Message | None:
    """Return a message if the log's division or benchmark must not become part of a rule file's path."""
    division = facts.first("submission_division")
    benchmark = facts.first("submission_benchmark")
    if division is None:
        return None
    if division.value not in DIVISIONS:
        return Message("an unknown division, for which the official checker has no rules", division.line)
    if benchmark and facts.benchmark not in benchmarks(ruleset, division.value):
        return Message("an unknown benchmark, for which the official checker has no rules", benchmark.line)
    return None


def _message(text: str, key: str | None) -> Message:
    required = _REQUIRED.fullmatch(text)
    if required:
        number, name, found, rest = required.groups()
        records = f"{found} records of {name}{rest}" if int(found) else f"no {name}"
        return Message(_short(records), None, name, f"{_NUMBERS[number]} {name}")
    alternatives = _ALTERNATIVES.fullmatch(text)
    if alternatives:
        names = alternatives[1].replace("'", "")
        return Message(f"no {names}", None, None, f"at least one {names}")
    checks = _CHECKS.fullmatch(text)
    if checks:
        name, tests = checks.groups()
        return Message(f"no {name} that the official checker accepts", None, name, _condition(tests))
    key_in_text = _KEY.search(text)
    if key is None and key_in_text:
        key = key_in_text[1]
    at_line = _AT_LINE.search(text)
    line = int(at_line[1]) if at_line else None
    test = _FAILED_TEST.search(text) or _CODE.search(text)
    if test is None:
        return Message(_short(text), line, key, None)
    what = "a log" if key is None else f"a value of {key}"
    return Message(f"{what} that the official checker rejects", line, key, _condition(test[1]))


def _condition(test: str) -> str:
    """Return an expression of the checker's Python code, named as such."""
    return f"the checker's condition {_short(test)}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_TEXT else line[: _LONGEST_TEXT - 3] + "..."


@lru_cache(maxsize=1)
def _folder() -> Path:
    spec = importlib.util.find_spec(_CHECKER)
    assert spec is not None and spec.origin is not None, "mlperf-logging is a dependency of this project"
    return Path(spec.origin).parent


@lru_cache(maxsize=1)
def _module() -> ModuleType:
    spec = importlib.util.find_spec(f"{_CHECKER}.mlp_compliance")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    changed: Any = module
    changed.yaml = SimpleNamespace(load=_load, BaseLoader=yaml.BaseLoader)
    changed.eval = _eval
    changed.exec = _exec
    changed.logging = SimpleNamespace(info=_silent, warning=_silent)
    changed.preety_dict = _silent  # one dump has 43,000 characters, with its 398 tensor names
    return module


def _load(stream: IO[str], Loader: Any) -> Any:
    return _rules(stream.name)


@lru_cache(maxsize=256)
def _rules(path: str) -> Any:
    # CBaseLoader returns the same as BaseLoader, and is 13 to 22 times as fast.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    with Path(path).open(encoding="utf-8") as stream:
        return yaml.load(stream, Loader=loader)  # noqa: S506 - a BaseLoader creates only text


def _key_rules(path: Path) -> list[dict[str, Any]]:
    """Return the rules in a file that concern a key; an empty file has none."""
    return [rule["KEY"] for rule in _rules(str(path)) or () if "KEY" in rule]


@lru_cache(maxsize=4096)
def _compiled(source: str, mode: str) -> CodeType:
    return compile(source, "<rule>", mode)


def _eval(source: str, *scopes: Any) -> Any:
    return builtins.eval(_compiled(source, "eval"), *scopes)  # noqa: S307 - rules of the installed mlperf-logging


def _exec(source: str, *scopes: Any) -> None:
    builtins.exec(_compiled(source, "exec"), *scopes)  # noqa: S102 - as above


def _silent(*_: Any) -> str:
    return ""
