"""The official mlperf-logging checker, run in this process and kept quiet.

It executes rule files whose path it builds from the log's division and benchmark, so both are checked here before
it sees a log, and its logging, which goes to the root logger, is turned off while it works.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mlperf_logging.compliance_checker import mlp_compliance

from compliance.run import RunFacts

Verdict = Literal["pass", "fail", "error"]
DEFAULT_RULESET = "5.0.0"  # the newest that accepts BERT
_DIVISIONS = ("closed", "open")


@dataclass(frozen=True)
class OfficialVerdict:
    """What the official checker says; `error` where it can't say anything."""

    ruleset: str
    verdict: Verdict
    messages: tuple[str, ...] = ()


def rulesets() -> list[str]:
    """Training rulesets of the installed checker that have rules for BERT."""
    folder = Path(mlp_compliance.__file__).parent
    return sorted(path.parent.name.removeprefix("training_") for path in folder.glob("training_*/closed_bert.yaml"))


def check(path: Path, facts: RunFacts, ruleset: str) -> OfficialVerdict:
    """The official verdict on a log."""
    if facts.division not in _DIVISIONS or facts.benchmark is None or not facts.benchmark.isidentifier():
        found = f"submission_division {facts.division!r} and submission_benchmark {facts.benchmark!r}"
        return OfficialVerdict(ruleset, "fail", (f"found {found}; expected closed or open, and a benchmark's name",))
    checker = mlp_compliance.make_checker("training", ruleset, quiet=False, werror=False)
    mlp_compliance.enqueued_configs.clear()  # a module's global: a log that failed half-way leaves its rest there
    try:
        with _quiet():
            passed, *_ = mlp_compliance.main(str(path), f"training_{ruleset}/common.yaml", checker)
    except Exception as error:  # the checker raises anything on logs it didn't expect  # noqa: BLE001
        return OfficialVerdict(ruleset, "error", (f"the official checker failed on this log: {error!r}",))
    messages = (*checker.overwritable.values(), *checker.not_overwritable)
    return OfficialVerdict(ruleset, "pass" if passed else "fail", tuple(messages))


@contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
