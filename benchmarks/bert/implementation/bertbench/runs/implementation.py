"""Write implementations/<system>/ of a package: the files with which anyone can repeat a system's runs.

<system>_bertbench.json   the system, its origin, and the resolved configuration of the runs
<system>.json             that configuration as a system file, an argument of the packaged run_and_time.sh
README.md, setup.sh, init_datasets.sh, run_and_time.sh
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAME = "bertbench"
"""The name of the implementation, and of the folder of its sources next to the systems' folders."""

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


def write_folder(
    folder: Path,
    system: str,
    config: dict[str, Any],
    description: dict[str, Any],
    runs: Sequence[dict[str, Any]],
    sources: str | None,
) -> None:
    """Write the folder of a system from its runs' configuration, description and origins (run.json).

    `sources` is the commit of the packaged sources, if known.
    """
    content = {
        "submitter": description["submitter"],
        "division": description["division"],
        "system": system,
        "implementation": NAME,
        "benchmark": "bert",
        "framework": description["framework"],
        "commits": sorted({str(run["commit"]) for run in runs}),
        "commit_of_sources": sources,
        "seeds": [run["seed"] for run in runs],
        "configuration": config,
    }
    words = _words(content, description["system_name"])
    folder.mkdir(parents=True)
    for name, described in ((f"{system}_{NAME}.json", content), (f"{system}.json", config)):
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
        "name": NAME,
        "description": config["description"] or machine,
        "where": "" if data["recipe"] else ", from MLCommons' files in MLPERF_BERT to DATADIR",
        "train": data["path"],
        "eval": data.get("eval_path") or data["path"],
        "checkpoint": config["model"].get("checkpoint"),
    }
