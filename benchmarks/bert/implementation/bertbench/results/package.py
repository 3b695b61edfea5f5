"""Build MLPerf's submission tree from results and our sources: judged to pass, or nothing is left.

systems/<system>.json                                   what the runs wrote of their machine, with the submitter
results/<system>/bert/result_<n>.txt                    the logs, unchanged
results/<system>/bert/power/                            what power meters read in the runs, if they did
benchmarks/bert/implementations/bertbench/              the sources, with the Dockerfile
benchmarks/bert/implementations/bertbench/measured/     configuration and origin of every run
benchmarks/bert/implementations/<system>/               what makes the runs again (results/implementation.py)
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
from bertbench.results import implementation
from bertbench.results.power import write_power
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
    """Fill the folder `out`, which is empty or not there yet, and return the verdict on it: pass.

    Raises PackageError if results are missing, if their judgement fails (RefusedPackageError), if `out` can't be
    written, or, without `allow_dirty`, if the sources or those of a run have changes that no commit holds. Raises
    CannotJudge if a result_<n>.txt is no log: the judge would take it for the one run that may fail.
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
                write_power(logs, unfinished / "results" / system / "bert", config)
                folder = unfinished / _IMPLEMENTATIONS / system
                runs = [_read(log.with_suffix("") / "run.json") for log in logs]
                implementation.write_folder(folder, system, config, description, runs, commit())
            judgement = judge_package(unfinished, ruleset)
            if judgement.verdict != "pass":
                text = package_text(judgement).replace(str(unfinished), str(out))
                raise RefusedPackageError(f"the judge fails the package, so nothing was written:\n{text}")
    except OSError as error:
        raise PackageError(
            f"{out}: cannot be made ({error.filename or out}: {system_reason(error)}); fix that, or name another --out"
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
    """Return the content of a file beside the logs that all runs share: configuration or description."""
    first, *others = [log.with_suffix("") / name for log in logs]
    content = _read(first)
    for other in others:
        if _read(other) != content:
            raise PackageError(f"{other}: differs from {first}; package runs of one system and one configuration")
    return content


def _require_commits(found: Mapping[str, Sequence[Path]]) -> None:
    """Raise PackageError where the code of the sources, or of a run by its log, stands in no commit."""
    remedy = "commit and run again, or package it as it is with --allow-dirty"
    if changed := uncommitted(_SOURCES):
        raise PackageError(f"{REPOSITORY}: found changes in {', '.join(changed[:5])}, expected none; {remedy}")
    for log in chain(*found.values()):
        run = log.with_suffix("") / "run.json"
        if _read(run).get("tree_dirty"):
            raise PackageError(f"{run}: this run's code had changes that no commit holds; {remedy}")


def _read(path: Path) -> dict[str, Any]:
    return read_object(path, PackageError, "keep the folder that a run left beside its log as it is")


def _copy_sources(folder: Path) -> None:
    if REPOSITORY is None:
        raise PackageError(f"found no sources beside {PACKAGE}; call the bertbench of a clone of the repository")
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
