"""Record what a newcomer sees: `python docs/site/first_run.py` runs the tutorial's commands for results/first_run.json.

It clones the checked-out commit, sets up an environment there, runs each command of the tutorial once, and records the
output, with sizes, machine and commit. It takes about three minutes. It needs network access and an otherwise idle
machine; if other programs run, name them with `--other-load TEXT`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bertbench.machine.provenance import provenance
from compliance.read.log import read_events
from compliance.read.run import RunFacts

_REPOSITORY = Path(__file__).parents[2]
_RECORD = _REPOSITORY / "results" / "first_run.json"
_LOG = "runs/cpu_demo/bert/result_0.txt"
_COMMANDS = {
    "bertbench data prepare --system cpu_demo": ("bertbench", "data", "prepare", "--system", "cpu_demo"),
    "./run_and_time.sh cpu_demo": ("./run_and_time.sh", "cpu_demo"),
    f"bertbench judge {_LOG}": ("bertbench", "judge", _LOG),
    "bertbench report runs/cpu_demo": ("bertbench", "report", "runs/cpu_demo"),
    'bertbench fill-mask "The [MASK] of the function"': ("bertbench", "fill-mask", "The [MASK] of the function"),
}


def recorded(clone: Path, other_load: str) -> dict[str, Any]:
    """Run the tutorial's commands in a clone, and return the record."""
    subprocess.run(["git", "clone", "--quiet", _REPOSITORY, clone], check=True)
    subprocess.run(["make", "--quiet", ".venv/.run-ready"], cwd=clone, check=True, stdout=sys.stderr)
    environment = os.environ | {"PATH": f"{clone}/.venv/bin:{os.environ['PATH']}"}
    for variable in ("VIRTUAL_ENV", "OMP_NUM_THREADS", "DATADIR", "LOGDIR"):
        environment.pop(variable, None)  # a newcomer hasn't set any of them
    printed = {shown: _printed(words, clone, environment) for shown, words in _COMMANDS.items()}
    facts = RunFacts(read_events(clone / _LOG))
    origin = provenance()
    origin.pop("omp_num_threads")  # describes this process, not the commands
    return {
        "measured": f"{datetime.now(UTC):%Y-%m-%d}",
        **origin,
        "other_load": other_load,
        "seed": facts.seed,
        "seconds_to_target": round(facts.time_to_train_s or 0, 1),
        "samples_to_target": int(facts.samples or 0),
        "dataset_mb": _megabytes(clone / "data" / "cpu_demo"),
        "environment_mb": _megabytes(clone / ".venv"),
        "printed": printed,
    }


def _printed(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the lines that a command prints on both streams, without the path of the folder."""
    done = subprocess.run(
        words, cwd=folder, env=environment, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return done.stdout.replace(f"{folder}/", "").rstrip("\n").split("\n")


def _megabytes(folder: Path) -> int:
    """Return the disk space of the files in a folder, in millions of bytes."""
    done = subprocess.run(["du", "--summarize", "--block-size=MB", folder], check=True, capture_output=True, text=True)
    return int(done.stdout.split("MB")[0])


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other-load", metavar="TEXT", default="none", help="what else ran on the machine")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = recorded(Path(folder) / "bertbench", arguments.other_load)
    _RECORD.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {_RECORD}")


if __name__ == "__main__":
    main()
