"""Judge a whole submission without changing it: its files, each system's description, and each result's runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from compliance.ask import copies
from compliance.ask.question import NamedRun, Question
from compliance.official import DEFAULT_RULESET
from compliance.official.ruleset import ruleset_of_path
from compliance.package import layout, system
from compliance.package.result import Result, judge_result
from compliance.read import description
from compliance.read.source import CannotJudge
from compliance.rules.rule import Breach, Unchecked
from compliance.rules.submission import LAYOUT

_BENCHMARK = "bert"


@dataclass(frozen=True)
class PackageJudgement:
    """The verdict on a package. Its own findings are about files and descriptions; `results` have the others."""

    path: Path
    ruleset: str
    breaches: tuple[Breach, ...]
    questions: tuple[Question, ...]
    not_applied: tuple[Unchecked, ...]
    results: tuple[Result, ...]
    strict: bool

    @property
    def verdict(self) -> Literal["pass", "fail"]:
        """Return `fail` for a breach and, if `strict`, for missing evidence that the rules ask for."""
        lacks_evidence = any(unchecked.asked for unchecked in self.all_not_applied())
        if self.all_breaches() or (self.strict and lacks_evidence):
            return "fail"
        return "pass"

    def all_breaches(self) -> list[Breach]:
        """Return the breaches of the package and its results, but not of single logs, because one run may fail."""
        return [*self.breaches, *(breach for result in self.results for breach in result.breaches)]

    def all_not_applied(self) -> list[Unchecked]:
        """Return what couldn't be checked about the package, its results and their logs."""
        not_applied = list(self.not_applied)
        for result in self.results:
            not_applied += result.not_applied
        for result in self.results:
            for log in result.logs:
                not_applied += log.not_applied
        return not_applied

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `--json` prints."""
        return {
            "path": str(self.path),
            "ruleset": self.ruleset,
            "verdict": self.verdict,
            "findings": [breach.as_json() for breach in self.breaches],
            "questions": [question.as_json() for question in self.questions],
            "not_applied": [unchecked.as_json() for unchecked in self.not_applied],
            "results": [result.as_json() for result in self.results],
        }


def judge_package(root: Path, ruleset: str | None = None, strict: bool = False) -> PackageJudgement:
    """Return the verdict on the package in a folder, under the given ruleset or else the one that its results indicate.

    With `strict`, missing evidence fails it. Raises CannotJudge if there is no such folder, and for a package without
    results of BERT, which breaks no rule.
    """
    if not root.is_dir():
        raise CannotJudge(
            f"{root}: no such folder; give the folder of a package, with systems/, benchmarks/ and results/"
        )
    if not (root / "results").is_dir():
        raise CannotJudge(
            f"{root}: found no results/; give the folder of a package, with systems/, benchmarks/ and results/"
        )
    if not any((folder / _BENCHMARK).is_dir() for folder in layout.folders(root / "results")):
        raise CannotJudge(
            f"{root}: found no results/<system>/{_BENCHMARK}/; give a package with results of {_BENCHMARK}"
        )
    ruleset = ruleset or ruleset_of_path(root)
    results: list[Result] = []
    questions: list[Question] = []
    findings: list[Breach | Unchecked] = [*layout.folders_and_descriptions(root)]
    for folder in layout.folders(root / "results"):
        described = f"systems/{folder.name}.json"
        logs = folder / _BENCHMARK
        if logs.is_dir():
            result = judge_result(logs, ruleset, str(logs.relative_to(root)))
            results.append(result)
            runs = [log.facts for log in result.logs if log.facts]
            questions += system.ask_about_names(described, description.fields_of_file(root / described), runs)
        findings += system.judge_description(root / described, described, ruleset or _ruleset_of(results))
        findings += _other_benchmarks(folder)
    questions += _copies_across(results)
    findings += layout.sources(root, _BENCHMARK)
    findings += layout.files(root, ruleset or _ruleset_of(results))
    return PackageJudgement(
        path=root,
        ruleset=ruleset or _ruleset_of(results),
        breaches=tuple(finding for finding in findings if isinstance(finding, Breach)),
        questions=tuple(questions),
        not_applied=tuple(finding for finding in findings if isinstance(finding, Unchecked)),
        results=tuple(results),
        strict=strict,
    )


def _copies_across(results: list[Result]) -> Iterator[Question]:
    """Ask about runs that have the measurements of another system's run; each result asks about its own runs."""
    runs = []
    for result in results:
        for log in result.logs:
            if log.facts is not None and not any(question.topic == copies.COPIED_RUN for question in log.questions):
                name = f"{result.system}/{result.benchmark}/{log.path.name}"
                runs.append(NamedRun(name, log.facts))
    for name, question in copies.ask(runs):
        yield question._replace(figure=f"{name}: {question.figure}")


def _ruleset_of(results: list[Result]) -> str:
    return results[-1].ruleset if results else DEFAULT_RULESET


def _other_benchmarks(folder: Path) -> Iterator[Unchecked]:
    others = [other.name for other in layout.folders(folder) if other.name != _BENCHMARK]
    if others:
        reason = f"results/{folder.name}: the judge knows only {_BENCHMARK}, not {', '.join(others)}"
        yield LAYOUT.unchecked(reason, asked=False)
