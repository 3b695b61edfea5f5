"""List the commands of `bertbench lab`: a bench or a study each, whose module loads when it is called."""

import argparse
import importlib

from bertbench.cli.commands import Command

_BENCHES = {
    "step": "measure the training step",
    "ideas": "measure each idea of a CPU's step and plain code in its place",
    "train": "measure the time to the target",
    "data": "measure the loader",
    "balance": "measure the speed-up of dealing by cost",
    "kernels": "count and compile the GPU step's kernels without a GPU",
    "optim": "measure the optimizers",
    "overlap": "measure communication hidden behind the backward pass",
    "links": "compare methods of training over slow links",
    "parallel": "compare parallel layouts by time",
}
_STUDIES = {
    "buckets": "compare numbers of buckets and thresholds of bucket clipping",
    "clip": "compare clip modes by samples to target",
    "compression": "compare compressed gradients by samples to target",
    "optimizer": "compare optimizers by samples and seconds to target",
    "paper": "check the paper's claims one by one",
}


def _command(name: str, text: str, module: str) -> Command:
    """Return the command whose module has `add_arguments` and `run`."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        importlib.import_module(module).add_arguments(parser)

    def run(arguments: argparse.Namespace) -> int:
        code: int = importlib.import_module(module).run(arguments)
        return code

    return Command(f"lab {name}", text, add_arguments, run)


COMMANDS = (
    *(_command(name, text, f"lab.bench.{name}") for name, text in _BENCHES.items()),
    *(_command(name, text, f"lab.commands.{name}") for name, text in _STUDIES.items()),
)
