"""Judge a whole submission without writing to it.

It judges the tree's files, each system's description, and each result's runs (`tree`, `systems`, `result`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from compliance import alike, description, systems, tree
from compliance.finding import Finding, Findings, named
from compliance.record import printable
from compliance.result import Result, judge_result
from compliance.source import CannotJudge

_BENCHMARK = "bert"


@dataclass(frozen=True)
class PackageJudgement:
    """The verdict on a package; `findings` concern the tree and the descriptions, `results` hold the others."""

    path: Path
    ruleset: str
    findings: tuple[Finding, ...]
    results: tuple[Result, ...]
    strict: bool

    @property
    def verdict(self) -> Literal["pass", "fail"]:
        """Return `fail` if a finding is an error; if `strict`, also if one is a warning, or if a log has one."""
        found = {one.severity for one in self.all_findings()}
        logs = any(log.findings for result in self.results for log in result.logs)
        return "fail" if "error" in found or (self.strict and ("warning" in found or logs)) else "pass"

    def all_findings(self) -> list[Finding]:
        """Return the findings of the package and of its results; findings of single logs stay in the results' logs."""
        return [*self.findings, *(finding for result in self.results for finding in result.findings)]

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `--json` prints."""
        shown = {name: getattr(self, name) for name in ("ruleset", "verdict", "findings")}
        return {"path": str(self.path), **shown, "results": [result.as_json() for result in self.results]}


def judge_package(root: Path, ruleset: str, strict: bool = False) -> PackageJudgement:
    """Return the verdict on the package in a folder; with `strict`, warnings fail it.

    Raises CannotJudge if it has no results/.
    """
    if not (root / "results").is_dir():
        raise CannotJudge(
            f"{root}: found no results/; give a package's folder, with systems/, benchmarks/ and results/"
        )
    results: list[Result] = []
    findings = [*tree.layout(root), *tree.files(root)]
    for system in tree.folders(root / "results"):
        here = list(_results(root, system, ruleset))
        results += here
        runs = [log.facts for result in here for log in result.logs if log.facts]
        name = f"systems/{system.name}.json"
        findings += systems.judge(root / name, name, runs, ruleset)
        findings += _other_benchmarks(system)
    findings += alike.copies([trace for result in results for trace in result.traces])
    if not results:
        found = f"no results/<system>/{_BENCHMARK}/"
        findings.append(Finding("layout", "error", found, "at least one result", "add results"))
    else:
        findings += tree.sources(root, _BENCHMARK)
    return PackageJudgement(root, ruleset, tuple(findings), tuple(results), strict)


def judgement_text(judgement: PackageJudgement) -> str:
    """Return the verdict as text."""
    lines = [f"{judgement.verdict.upper():<12} {judgement.path}"]
    for result in judgement.results:
        passed = sum(log.verdict == "pass" for log in result.logs)
        time = "unknown" if result.time_to_train_s is None else f"{result.time_to_train_s:.1f} s"
        energy = f", energy {result.energy_j:,.0f} J" if result.energy_j is not None else ""
        scaled = f", scaled by {result.convergence.scaling:.4f}" if result.convergence else ""
        lines.append(
            f"  {result.system}, {result.benchmark}, {result.division} division, ruleset {judgement.ruleset}: "
            f"{passed} of {len(result.logs)} logs pass, time to train {time}{energy}{scaled}"
        )
    found = [(named(one.severity), _line(one)) for one in judgement.all_findings()]
    for result in judgement.results:
        for log in result.logs:
            # one run may fail, so an error of a log decides nothing in a package that passes
            mild = "tolerated" if judgement.verdict == "pass" else "error"
            place = f"{result.system}/{result.benchmark}/{log.path.name}"
            for one in log.findings:
                where = place if one.line is None else f"{place}:{one.line}"
                found.append((mild if one.severity == "error" else named(one.severity), f"{where}: {_line(one)}"))
    order = ("error", "warning", "tolerated", "note")
    lines += [f"  {kind} {text}" for kind, text in sorted(found, key=lambda pair: order.index(pair[0]))]
    rules = dict.fromkeys(
        f"  not applied: {result.system}: {rule}: {reason}"
        for result in judgement.results for log in result.logs for rule, reason in log.not_applied
    )  # fmt: skip
    return "\n".join(map(printable, [*lines, *rules]))


def _results(root: Path, system: Path, ruleset: str) -> Iterator[Result]:
    folder = system / _BENCHMARK
    if folder.is_dir():
        described = description.fields(root / "systems" / f"{system.name}.json")
        yield judge_result(folder, str(folder.relative_to(root)), described, ruleset)


def _other_benchmarks(system: Path) -> Findings:
    others = [folder.name for folder in tree.folders(system) if folder.name != _BENCHMARK]
    if others:
        found = f"results/{system.name}: {', '.join(others)}"
        yield Finding("benchmark", "warning", found, _BENCHMARK, "judge other benchmarks with the official tools")


def _line(finding: Finding) -> str:
    return f"{finding.rule}: {finding.found}; expected {finding.expected}; {finding.remedy}"
