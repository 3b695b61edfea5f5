"""Build MLPerf's submission tree from results and our sources. If the judge fails it, nothing is written.

systems/<system>.json                                   the description that runs wrote of their machine, with submitter
results/<system>/bert/result_<n>.txt                    the logs, unchanged
benchmarks/bert/implementations/bertbench/              the sources, with the Dockerfile
benchmarks/bert/implementations/bertbench/measured/     configuration and origin of every run
benchmarks/bert/implementations/<system>/               the files with which anyone can repeat the runs:
    <system>_bertbench.json   the system, its origin, and the resolved configuration of the runs
    <system>.json             that configuration as a system file, an argument of the packaged run_and_time.sh
    README.md, setup.sh, init_datasets.sh, run_and_time.sh
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
_NAME = "bertbench"
"""The name of the implementation, and of the folder of its sources next to the systems' folders."""
_IMPLEMENTATION = _IMPLEMENTATIONS / _NAME
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")

_HEAD = """#!/usr/bin/env bash
# {purpose}
set -euo pipefail
unset CDPATH # with it, `cd` prints the folder
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
sources="$here/../{name}"
"""

_SETUP = """# Needs Python 3.11 or newer and a package index. In a container instead: docker build "$sources"
make -C "$sources" VENV=.venv .venv/.run-ready
"""

# Use the environment of the sources if setup.sh made one. Otherwise use python3: a container has all that a run needs.
_ENVIRONMENT = """export PYTHONPATH="$sources/benchmarks/bert/implementation:$sources"
python="$sources/.venv/bin/python"
[[ -x "$python" ]] || python=python3
"""

_OWN_DATA = """exec "$python" -m bertbench data prepare --system "$here/{system}.json" "$@"
"""

_MLPERF_DATA = """
: "${{DATADIR:?set it to the folder of the prepared data}}"
: "${{MLPERF_BERT:?set it to a folder with part-*-of-00500, eval.txt, vocab.txt, bert_config.json, model.ckpt-28252.*}}"
prepare=("$python" -m bertbench data prepare --recipe mlperf --vocab "$MLPERF_BERT/vocab.txt")
"${{prepare[@]}}" --text "$MLPERF_BERT"/part-*-of-00500 --out "$DATADIR/{train}_in_order"
"${{prepare[@]}}" --text "$MLPERF_BERT/eval.txt" --select-eval 10000 --out "$DATADIR/{eval}"
"$python" -m bertbench data shuffle "$DATADIR/{train}_in_order" --seed 1 --shards 4320 --out "$DATADIR/{train}"
[[ -e "$DATADIR/{checkpoint}" ]] || "$python" -m bertbench checkpoint import \\
    --from-tf "$MLPERF_BERT/model.ckpt-28252" --config "$MLPERF_BERT/bert_config.json" --out "$DATADIR/{checkpoint}"
"""

_RUN = """exec "$sources/run_and_time.sh" "$here/{system}.json" "$@"
"""

_README = """# {system}, BERT, {division} division

{description}

The logs of ten runs, each with its own seed, are in `results/{system}/bert`. `{system}_{name}.json` has their
configuration, seeds and commits, and the commit of the sources in `../{name}`. `{system}.json` is their system file.

```
./setup.sh                        # makes an environment in ../{name}/.venv; or build the image of ../{name}/Dockerfile
./init_datasets.sh                # makes the data{where}
./run_and_time.sh --runs 10       # LOGDIR says where results go; --seed N repeats one run
```
"""


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
                write_system_folder(folder, system, config, description, runs, commit())
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


def write_system_folder(
    folder: Path,
    system: str,
    config: dict[str, Any],
    description: dict[str, Any],
    runs: Sequence[dict[str, Any]],
    sources: str | None,
) -> None:
    """Write the files with which anyone can repeat a system's runs.

    They come from the runs' configuration, description and origins (run.json). `sources` is the commit of the packaged
    sources, if known.
    """
    content = {
        "submitter": description["submitter"],
        "division": description["division"],
        "system": system,
        "implementation": _NAME,
        "benchmark": "bert",
        "framework": description["framework"],
        "commits": sorted({str(run["commit"]) for run in runs}),
        "commit_of_sources": sources,
        "seeds": [run["seed"] for run in runs],
        "configuration": config,
    }
    words = _words(content, description["system_name"])
    folder.mkdir(parents=True)
    for name, described in ((f"{system}_{_NAME}.json", content), (f"{system}.json", config)):
        (folder / name).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(_README.format(**words), encoding="utf-8")
    for name, purpose, body in (
        ("setup.sh", "Makes the environment that the runs need, in the sources' .venv.", _SETUP),
        (
            "init_datasets.sh",
            "Makes the data of the runs, and the weights from which they start.",
            _ENVIRONMENT + (_MLPERF_DATA if words["where"] else _OWN_DATA),
        ),
        ("run_and_time.sh", "Makes one timed run, or --runs of them.", _ENVIRONMENT + _RUN),
    ):
        script = folder / name
        script.write_text((_HEAD + body).format(purpose=purpose, **words), encoding="utf-8")
        script.chmod(0o755)


def _words(content: dict[str, Any], machine: str) -> dict[str, Any]:
    """Return the values that the templates need."""
    config = content["configuration"]
    data = config["data"]
    return content | {
        "name": _NAME,
        "description": config["description"] or machine,
        "where": "" if data["recipe"] else ", from MLCommons' files in MLPERF_BERT to DATADIR",
        "train": data["path"],
        "eval": data.get("eval_path") or data["path"],
        "checkpoint": config["model"].get("checkpoint"),
    }
