"""Build MLPerf's submission tree from results and our sources. If the judge fails it, nothing is written.

systems/<system>.json                                   the description that runs wrote of their machine, with submitter
results/<system>/bert/result_<n>.txt                    the logs, unchanged
benchmarks/bert/implementations/bertbench/              the sources, with the Dockerfile
benchmarks/bert/implementations/bertbench/measured/     configuration and origin of every run
benchmarks/bert/implementations/<system>/               the files that repeat the runs (runs/implementation.py)
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertbench.common.atomic import new_folder
from bertbench.common.errors import PackageError, RefusedPackageError, system_reason
from bertbench.common.json_object import read_object
from bertbench.common.paths import PACKAGE, REPOSITORY
from bertbench.machine.provenance import commit, uncommitted
from bertbench.runs import implementation
from compliance import judge_package, package_text
from compliance.read.find import LOG_PATTERN
from compliance.read.log import read_events

if TYPE_CHECKING:
    from compliance.package.package import PackageJudgement

_SOURCES = (
    "Dockerfile", "LICENSE", "Makefile", "README.md", "benchmarks", "compliance", "constraints.txt", "docs",
    "lab", "pyproject.toml", "run_and_time.sh", "setup.py",
)  # fmt: skip
_IMPLEMENTATIONS = Path("benchmarks", "bert", "implementations")
_IMPLEMENTATION = _IMPLEMENTATIONS / implementation.NAME
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")


def build(
    out: Path, submitter: str, systems: Sequence[str], results: Path, ruleset: str, allow_dirty: bool
) -> "PackageJudgement":
    """Fill the folder `out`, which must be empty or missing, and return the judge's verdict on it: pass.

    Raises PackageError if results are missing, if the judge fails them (RefusedPackageError), if `out` can't be
    written, or, without `allow_dirty`, if the sources or the code of a run had uncommitted changes. Raises CannotJudge
    if a result_<n>.txt isn't a log, because the judge would count it as the one run that may fail.
    """
    out = out.resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PackageError(f"{out}: exists already and is not an empty folder; remove it or name another with --out")
    logs_of_systems = {system: _logs(results, system) for system in dict.fromkeys(systems)}
    descriptions = {
        system: _shared(logs, "system.json") | {"submitter": submitter} for system, logs in logs_of_systems.items()
    }
    if not allow_dirty:
        _require_commits(logs_of_systems)
    try:
        with new_folder(out) as unfinished:
            _copy_sources(unfinished / _IMPLEMENTATION)
            (unfinished / "systems").mkdir()
            for system, logs in logs_of_systems.items():
                description, config = descriptions[system], _shared(logs, "config.json")
                text = json.dumps(description, indent=2) + "\n"
                (unfinished / "systems" / f"{system}.json").write_text(text, encoding="utf-8")
                _copy_runs(logs, unfinished, system)
                folder = unfinished / _IMPLEMENTATIONS / system
                runs = [_read(log.with_suffix("") / "run.json") for log in logs]
                implementation.write_folder(folder, system, config, description, runs, commit())
            judgement = judge_package(unfinished, ruleset)
            if judgement.verdict != "pass":
                text = package_text(judgement).replace(str(unfinished), str(out))
                raise RefusedPackageError(f"the judge fails the package, so nothing was written:\n{text}")
    except OSError as error:
        raise PackageError(
            f"{out}: can't be written ({error.filename or out}: {system_reason(error)}); fix it, or name another --out"
        ) from error
    return judge_package(out, ruleset)


def _logs(results: Path, system: str) -> list[Path]:
    folder = results / system / "bert"
    logs = sorted(folder.glob(LOG_PATTERN), key=lambda log: (len(log.name), log.name))
    if Path(system).name != system or not logs:
        raise PackageError(f"found no {LOG_PATTERN} of {system!r} in {folder}; name another folder with --results")
    for log in logs:
        read_events(log)
    return logs


def _shared(logs: Sequence[Path], name: str) -> dict[str, Any]:
    """Return the content of a file that must be the same for all runs: their configuration or system description."""
    first, *others = [log.with_suffix("") / name for log in logs]
    content = _read(first)
    for other in others:
        if _read(other) != content:
            raise PackageError(f"{other}: differs from {first}; package runs of one system and one configuration")
    return content


def _require_commits(found: Mapping[str, Sequence[Path]]) -> None:
    """Raise PackageError if the sources, or the code of a run according to its log, had uncommitted changes."""
    remedy = "commit and run again, or package it as it is with --allow-dirty"
    if changed := uncommitted(_SOURCES):
        raise PackageError(f"{REPOSITORY}: found uncommitted changes in {', '.join(changed[:5])}; {remedy}")
    for log in chain(*found.values()):
        run = log.with_suffix("") / "run.json"
        if _read(run).get("tree_dirty"):
            raise PackageError(f"{run}: the code of this run had uncommitted changes; {remedy}")


def _read(path: Path) -> dict[str, Any]:
    return read_object(path, PackageError, "don't change the folder that a run wrote next to its log")


def _copy_sources(folder: Path) -> None:
    if REPOSITORY is None:
        raise PackageError(f"found no sources next to {PACKAGE}; call the bertbench of a clone of the repository")
    folder.mkdir(parents=True)
    for name in _SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=_LEFT_OUT)
        else:
            shutil.copy2(source, folder / name)


def _copy_runs(logs: Sequence[Path], package: Path, system: str) -> None:
    target = package / "results" / system / "bert"
    target.mkdir(parents=True)
    for log in logs:
        shutil.copy2(log, target)
        measured = package / _IMPLEMENTATION / "measured" / system / log.stem
        measured.mkdir(parents=True)
        for name in ("config.json", "run.json"):
            shutil.copy2(log.with_suffix("") / name, measured)
