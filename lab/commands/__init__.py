"""List the commands of `bertbench lab`: a bench or a study each, whose module loads when it is called."""

import argparse
import importlib
from collections.abc import Callable

from bertbench.cli.commands import Command

_BENCHES = {
    "step": "measure the training step",
    "ideas": "measure each idea of a CPU's step and plain code in its place",
    "time-to-target": "measure the time to the target beside Hugging Face's Trainer",
    "loader": "measure the loader",
    "assignment": "measure the speed-up of assigning samples to ranks by cost",
    "unequal": "measure the gain of work by measured speed where one rank is slow",
    "simulation": "draw what `bertbench balance` simulates as a page",
    "kernels": "count and compile the GPU step's kernels without a GPU",
    "roofline": "compute a step's time from its kernels, beside published results",
    "forecast": "measure the errors of forecasts of published results",
    "ablation": "compute what each method of the paper saves on 1,024 A100s",
    "scaling": "show speed-up and efficiency over ranks, measured, computed and published",
    "update": "measure the optimizers' update of the weights",
    "overlap": "measure communication hidden behind the backward pass",
    "links": "compare methods of training over slow links",
    "exchange": "compare ways in which gradients meet: all-reduces, servers, gossip",
    "parallel": "compare parallel layouts by time",
    "pipeline": "compare pipeline schedules at equal work",
    "fp8": "compare fp8 with bf16 by samples to the target",
    "squad": "fine-tune on questions in several layouts, and compare speed, scores and goodput",
}
_STUDIES = {
    "batch": "compare batch sizes, and the rules that scale the rate, by samples and steps to target",
    "buckets": "compare numbers of buckets and thresholds of bucket clipping",
    "compression": "compare compressed gradients by samples to target",
    "optimizer": "compare optimizers by samples and seconds to target",
}
"""Each runs lab/commands/study.py with the definition of its name."""
_OTHER_STUDIES = {
    "clip": "compare clip modes by samples to target",
    "paper": "check the paper's claims one by one",
}
"""Each has a module of its own."""


def _command(name: str, text: str, module: str, study: str | None = None) -> Command:
    """Return the command whose module has `add_arguments` and `run`, or makes them for `study`."""

    def functions() -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]:
        loaded = importlib.import_module(module)
        if study is None:
            return loaded.add_arguments, loaded.run
        add_arguments, run = loaded.study_command(study)
        return add_arguments, run

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add, _ = functions()
        add(parser)

    def run(arguments: argparse.Namespace) -> int:
        _, run_command = functions()
        return run_command(arguments)

    return Command(f"lab {name}", text, add_arguments, run)


COMMANDS = (
    *(_command(name, text, f"lab.bench.{name.replace('-', '_')}") for name, text in _BENCHES.items()),
    *(_command(name, text, "lab.commands.study", study=name) for name, text in _STUDIES.items()),
    *(_command(name, text, f"lab.commands.{name}") for name, text in _OTHER_STUDIES.items()),
)
