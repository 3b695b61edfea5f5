"""Compare the losses of 20 steps, in each setting that a refactoring must not change, with the recorded ones.

`python -m tests.losses.net` takes two minutes: it prints a line for each setting, and exits with 1 if a loss differs
from `recorded.json` in any bit. `--record` writes the file. Names of settings restrict it to those.

Losses repeat to the bit on one kind of processor with one version of torch, so the file has them for each kind that
someone recorded on; elsewhere `ROUNDING` bounds the difference.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch

from bertbench.data.text.vocabulary import Vocabulary
from bertbench.finetune.squad import read_squad
from tests.tiny import TINY_SYSTEM, tiny_text

RECORDED = Path(__file__).with_name("recorded.json")
QUESTIONS = Path(__file__).parents[1] / "finetune" / "questions.json"
STEPS = 20
ROUNDING = 0.05
"""Relative: other processors sum in another order, which 20 steps amplify; a wrong formula moves more than this."""

COMMON = (
    "compute.products=torch",
    "precision.compute=fp32",
    f"schedule.max_steps={STEPS}",
    "schedule.warmup_steps=3",
    "model.hidden_dropout=0.1",
    "model.attention_dropout=0.1",
    "model.layers=4",
    "model.feed_forward_size=22",
    "data.global_batch_size=16",
    "checkpoint.final_weights=false",
    "evaluation.interval_samples=160",
)
MUON = ("optimizer.name=muon", "optimizer.ema_decay=0.9", "model.initial_weights=mimetic")
PARTS = ("data.local_batch=8", "data.global_batch_size=null", "data.gradient_accumulation_steps=2")

PRETRAINING: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "muon": MUON,
    "lamb": ("optimizer.name=lamb",),
    "lamb in bf16": ("optimizer.name=lamb", "precision.compute=bf16", "precision.residual=bf16"),
    "clip none": ("clip.mode=none",),
    "clip before": ("clip.mode=before", "clip.max_norm=0.3"),
    "clip bucket": ("clip.mode=bucket", "clip.max_norm=0.3", "communication.bucket_mb=0.01"),
    "clip each part": (*PARTS, "clip.mode=bucket", "clip.parts=each", "clip.max_norm=0.3"),
    "accumulation": PARTS,
    "sharded Adam": ("optimizer.sharded=true",),
    "sharded LAMB": ("optimizer.name=lamb", "optimizer.sharded=true"),
    "bf16 gradients": ("communication.compression=bf16",),
    "stratified presort": (
        "data.balance=stratified_presort",
        "data.local_batch=8",
        "data.global_batch_size=null",
        "data.strata_edges=[12,20,29]",
    ),
    "packed": ("data.balance=packed",),
    "pipeline 2": ("parallel.pipeline=2", "parallel.microbatches=3"),
    "interleaved": (
        "parallel.pipeline=2",
        "parallel.virtual_stages=2",
        "parallel.schedule=interleaved",
        "parallel.microbatches=4",
        "parallel.recompute=true",
    ),
    "tensor 2": ("parallel.tensor=2",),
    "tensor 2, pipeline 2": (
        "launch.ranks_per_node=4",
        "parallel.tensor=2",
        "parallel.pipeline=2",
        "parallel.microbatches=3",
        "optimizer.name=lamb",
    ),
    "FSDP": ("parallel.fully_shard=true",),
}
FINE_TUNING: dict[str, tuple[str, ...]] = {
    "fine-tuning on one rank": ("launch.ranks_per_node=1",),
    "fine-tuning on two ranks": (),
}
SHORTEST = ("clip bucket", "fine-tuning on two ranks")
"""The settings that `make test` compares."""


def processor() -> str:
    """Return what the bits of a sum depend on: torch's version, its vector instructions and the processor's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {model}"


def recorded() -> tuple[dict[str, list[float]], bool]:
    """Return the recorded losses by setting, and whether they were recorded on a processor like this one."""
    everywhere = json.loads(RECORDED.read_text())
    here = processor()
    if here in everywhere:
        return everywhere[here], True
    return next(iter(everywhere.values())), False


def difference(losses: Sequence[float], expected: Sequence[float], *, same_processor: bool) -> str | None:
    """Say where losses differ from the recorded ones, or return None."""
    if len(losses) != len(expected):
        return f"{len(losses)} steps instead of {len(expected)}"
    for step, (loss, wanted) in enumerate(zip(losses, expected, strict=True), start=1):
        allowed = 0.0 if same_processor else ROUNDING * wanted
        if not abs(loss - wanted) <= allowed:
            return f"step {step} has loss {loss}, recorded was {wanted}"
    return None


class Net:
    """Trains each setting by the commands that users call, in a folder with a small dataset and questions."""

    def __init__(self, folder: Path) -> None:
        """Prepare data and vocabulary in the folder."""
        self.folder = folder
        text = folder / "articles.txt"
        text.write_text(tiny_text(Random(7), articles=60))
        self.system = folder / "net.json"
        self._write_system(self.system, {})
        self._bertbench("data", "prepare", "--system", self.system, "--text", text, "--out", folder / "data")
        texts = [part for question in read_squad(QUESTIONS) for part in (question.context, question.text)]
        self.vocabulary = folder / "vocab.txt"
        self.vocabulary.write_text(Vocabulary.train(texts, 199).text, encoding="utf-8")
        self.questions_system = folder / "questions.json"
        recipe = {
            "task": "squad",
            "data": {"global_batch_size": 5},
            "optimizer": {"name": "adam", "learning_rate": 0.003},
            "schedule": {"warmup_steps": 3},
            "squad": {"epochs": 4},
        }
        sizes = {"vocab_size": 211, "hidden_size": 38, "max_positions": 101, "initializer_range": 0.1}
        self._write_system(self.questions_system, sizes, **recipe)

    def losses(self, name: str) -> list[float]:
        """Train in this setting; return the loss of each step over all ranks."""
        if name in FINE_TUNING:
            return self._finetuning_losses(FINE_TUNING[name])
        return self.pretraining_losses(PRETRAINING[name])

    def pretraining_losses(self, settings: tuple[str, ...], technique: tuple[str, ...] = ()) -> list[float]:
        """Pre-train with these settings, by a technique if its words are given; return the loss of each step."""
        log = Path(tempfile.mkdtemp(dir=self.folder)) / "result_0.txt"
        options = [word for setting in (*COMMON, *settings) for word in ("--set", setting)]
        command = ("lab", "train", self.system, "--technique", *technique) if technique else ("train", self.system)
        self._bertbench(*command, "--seed", 5, "--result", log, *options, ends_with=(0, 3))
        return _losses_in(log.with_suffix("") / "metrics.jsonl")

    def _finetuning_losses(self, settings: tuple[str, ...]) -> list[float]:
        out = Path(tempfile.mkdtemp(dir=self.folder)) / "out"
        options = [word for setting in settings for word in ("--set", setting)]
        files = ("--train", QUESTIONS, "--dev", QUESTIONS, "--vocab", self.vocabulary, "--out", out)
        self._bertbench("finetune", "squad", "--system", self.questions_system, "--seed", 5, *files, *options)
        return _losses_in(next(out.glob("*.jsonl")))

    def _write_system(self, path: Path, model: dict[str, Any], **sections: Any) -> None:
        system = {**TINY_SYSTEM, "data": {**TINY_SYSTEM["data"], "path": str(self.folder / "data")}, **sections}
        system["model"] = {**TINY_SYSTEM["model"], **model}
        path.write_text(json.dumps(system))

    def _bertbench(self, *words: object, ends_with: tuple[int, ...] = (0,)) -> None:
        """Call a command; a run that misses its target ends with 3. Raises AssertionError with its output."""
        command = [sys.executable, "-m", "bertbench", *map(str, words)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode in ends_with, done.stdout + done.stderr


def _losses_in(metrics: Path) -> list[float]:
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [step["loss"] for step in steps if "loss" in step][:STEPS]


def _one_setting_a_line(everywhere: dict[str, dict[str, list[float]]]) -> str:
    processors = []
    for name, settings in everywhere.items():
        lines = [f"  {json.dumps(setting)}: {json.dumps(losses)}" for setting, losses in settings.items()]
        processors.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(processors) + "\n}\n"


def main() -> int:
    """Compare, or record; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="settings to train (default: all)")
    parser.add_argument("--record", action="store_true", help="write the losses instead of comparing them")
    arguments = parser.parse_args()
    known = [*PRETRAINING, *FINE_TUNING]
    names = arguments.names or known
    for name in names:
        if name not in known:
            parser.error(f"found {name!r}, expected some of {', '.join(known)}")
    expected, same_processor = ({}, True) if arguments.record else recorded()
    found = {}
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        net = Net(Path(folder))
        for name in names:
            found[name] = net.losses(name)
            if arguments.record:
                print(f"{name}: {found[name][0]} to {found[name][-1]}", flush=True)
                continue
            fault = difference(found[name], expected[name], same_processor=same_processor)
            differing += fault is not None
            print(f"{name}: {fault or 'equal'}", flush=True)
    if arguments.record:
        everywhere = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
        everywhere[processor()] = {**everywhere.get(processor(), {}), **found}
        RECORDED.write_text(_one_setting_a_line(everywhere))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
