"""List the commands of `bertbench lab`: a bench or a study each, whose module loads when it is called."""

import argparse
import importlib

from bertbench.cli.commands import Command

_BENCHES = {
    "step": "measure the training step",
    "ideas": "measure each idea of a CPU's step and plain code in its place",
    "time-to-target": "measure the time to the target beside Hugging Face's Trainer",
    "loader": "measure the loader",
    "assignment": "measure the speed-up of assigning samples to ranks by cost",
    "simulation": "draw what `bertbench balance` simulates as a page",
    "kernels": "count and compile the GPU step's kernels without a GPU",
    "roofline": "compute a step's time from its kernels, beside published results",
    "forecast": "measure the errors of forecasts of published results",
    "update": "measure the optimizers' update of the weights",
    "overlap": "measure communication hidden behind the backward pass",
    "links": "compare methods of training over slow links",
    "exchange": "compare ways in which gradients meet: all-reduces, servers, gossip",
    "parallel": "compare parallel layouts by time",
    "pipeline": "compare pipeline schedules at equal work",
    "squad": "fine-tune on questions in several layouts, and compare speed, scores and goodput",
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
    *(_command(name, text, f"lab.bench.{name.replace('-', '_')}") for name, text in _BENCHES.items()),
    *(_command(name, text, f"lab.commands.{name}") for name, text in _STUDIES.items()),
)
