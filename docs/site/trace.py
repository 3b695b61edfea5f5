"""Record a step of a pipeline: `python docs/site/trace.py` makes a smoke run and writes results/trace.json.

The run has two CPU ranks, one per stage. If other programs run on the machine, name them with `--other-load TEXT`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from bertbench.machine.provenance import provenance
from bertbench.runs.run_summary import read_summary

_RECORD = Path(__file__).parents[2] / "results" / "trace.json"
_COMMAND = "train cpu_parallel --smoke --seed 1 --set launch.ranks_per_node=2 --set parallel.tensor=1"


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other-load", metavar="TEXT", default="none", help="what else ran on the machine")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "bertbench", *_COMMAND.split()], check=True, env=os.environ | {"LOGDIR": folder}
        )
        run = read_summary(Path(folder, "cpu_parallel", "smoke", "smoke_0.txt"))
    bars = run.trace.first_step()
    began_ms = min(bar.began_ms for bar in bars)
    rows = [
        [bar.rank, bar.kind, bar.step, bar.stage, bar.microbatch, bar.began_ms - began_ms, bar.ended_ms - began_ms]
        for bar in bars
    ]
    record = {
        "command": f"bertbench {_COMMAND}",
        "measured": f"{datetime.now(UTC):%Y-%m-%d}",
        **provenance(),
        "other_load": arguments.other_load,
        "pipeline": run.settings["parallel.pipeline"],
        "microbatches": run.settings["parallel.microbatches"],
        "columns": ["rank", "kind", "step", "stage", "microbatch", "began_ms", "ended_ms"],
        "spans": rows,
    }
    _RECORD.write_text(json.dumps(record) + "\n", encoding="utf-8")
    print(f"wrote {_RECORD}")


if __name__ == "__main__":
    main()
