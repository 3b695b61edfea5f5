"""Run bertbench itself on one GPU, as a user would: the demo, and BERT-Large on text of Wikipedia's lengths."""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertbench.common.children import dying_with_us
from bertbench.common.paths import SCRIPTS_HOME
from bertbench.data.store.manifest import Manifest, Tokenizer
from bertbench.data.store.shards import write_split
from bertbench.model.shape import SHAPES, BertShape
from lab.bench.gpu.child import run_within
from lab.bench.gpu.testbed import Row, Unfit, print_row
from lab.bench.gpu.text import learnable
from lab.bench.short_run import model_section

_ONE_GPU = ("launch.device=cuda", "launch.ranks_per_node=1", "hardware.accelerators_per_node=1")
_PLAIN = ("compute.compile=none", "optimizer.impl=torch")
_NO_GPU = "found 0 GPUs"  # in the last line of a run without a GPU
_TARGET_REACHED, _TARGET_MISSED = 0, 3
_STEPS = 200
_BATCH = 96  # samples: 24,576 tokens, as in the certificate of kernels
_EVALUATED = 256
_FALLS = 0.8  # the last loss must be below this share of the first
_WARM_UP = 20  # steps before the rate is measured


def demo() -> None:
    """Train the demo to its target on a GPU."""
    with own_folder():
        words = [sys.executable, "-m", "bertbench", "data", "prepare", "--system", "cpu_demo"]
        subprocess.run(words, check=True, stdout=sys.stderr, preexec_fn=dying_with_us())
        print_row(trained("cpu_demo", _ONE_GPU))


def plain() -> None:
    """Train BERT-Large for 200 steps without fast paths, to compare loss and rate with those of steps.py."""
    with own_folder() as folder:
        system = write_system(folder, SHAPES["large"], _BATCH, _STEPS)
        print_row({"choice": "plain", **trained(str(system), _PLAIN, (_TARGET_REACHED, _TARGET_MISSED))})


def trained(system: str, settings: Sequence[str], codes: Collection[int] = (_TARGET_REACHED,)) -> Row:
    """Train by run_and_time.sh; return how the run ended, and its rate after the first steps."""
    overrides = [word for setting in settings for word in ("--set", setting)]
    answer = _run([system, "--seed", "7", *overrides], codes)
    folder = Path(answer["log"]).with_suffix("")
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [step["loss"] for step in steps]
    samples = steps[0]["samples"]
    milliseconds = statistics.fmean(step["step_ms"] for step in steps[_WARM_UP:])
    arithmetic = json.loads((folder / "communication.json").read_text())
    return {
        **answer,
        "steps": len(steps),
        "samples_per_s": round(1e3 * samples / milliseconds, 1),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "model_arithmetic": arithmetic["model_arithmetic"],
        "optimizer_arithmetic": arithmetic["optimizer_arithmetic"],
        "holds": all(map(math.isfinite, losses)) and losses[-1] < _FALLS * losses[0],
    }


def write_system(folder: Path, shape: BertShape, batch: int, steps: int) -> Path:
    """Write a dataset and the file of a system that trains a model of `shape` on it for `steps` steps on one GPU."""
    content = learnable(shape, batch * steps + _EVALUATED, seed=1)
    data = folder / "made_up"
    data.mkdir()
    train = write_split(data / "train", [content], len(content.lengths))
    evaluated = write_split(data / "eval", [learnable(shape, _EVALUATED, seed=2)], _EVALUATED)
    tokenizer = Tokenizer(shape.vocab_size, "", {})
    Manifest(request={"recipe": {}}, tokenizer=tokenizer, train=train, eval=evaluated).write(data)
    system = {
        "extends": ["base/bert_large", "base/gpu"],
        "hardware": {"division": "open", "system_name": "gpu_check", "number_of_nodes": 1, "accelerators_per_node": 1},
        "launch": {"ranks_per_node": 1, "clear_caches": False},
        "model": {"checkpoint": None, **model_section(shape)},
        "data": {"path": str(data), "eval_path": str(data), "local_batch": batch, "equal_counts": True},
        "optimizer": {"name": "lamb", "learning_rate": 5e-3},
        "schedule": {"max_steps": steps, "warmup_steps": steps // 4},
        "evaluation": {"target": 0.999, "interval_samples": batch * steps, "batch_size": 64},
        "checkpoint": {"final_weights": False},
    }  # fmt: skip
    path = folder / "gpu_check.json"
    path.write_text(json.dumps(system))
    return path


@contextmanager
def own_folder() -> Iterator[Path]:
    """Provide a folder for the data and runs of this process's commands, and remove it at the end."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DATADIR"], os.environ["LOGDIR"] = str(Path(folder) / "data"), str(Path(folder) / "runs")
        yield Path(folder)


def _run(words: list[str], codes: Collection[int] = (_TARGET_REACHED,)) -> dict[str, Any]:
    """Call run_and_time.sh and return its output. Raises Unfit if it finds no GPU, RuntimeError if it fails."""
    # if the checkout has no .venv, the script uses the path's python3
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    output: list[str] = []
    command = [str(SCRIPTS_HOME / "run_and_time.sh"), *words, "--json"]
    ended = run_within(command, output.append, environment={**os.environ, "PATH": path})
    if ended.code not in codes:
        raise Unfit("needs a GPU") if _NO_GPU in ended.last else RuntimeError(f"ended with {ended.code}: {ended.last}")
    answer: dict[str, Any] = json.loads("".join(output))[0]
    return answer
