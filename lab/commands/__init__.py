"""List the commands of `bertbench lab`. Each is a bench or a study; its module is loaded when the command is called."""

import argparse
import importlib

from bertbench.cli.commands import Command

_BENCHES = {
    "step": "compare the speed of a training step with that of transformers' BERT",
    "time-to-target": "compare the time to the target with that of Hugging Face's Trainer",
    "loader": "compare the loader's speed with that of Hugging Face datasets",
    "assignment": "measure the speed-up of assigning samples to ranks by cost",
    "kernels": "count and compile the GPU step's kernels without a GPU",
    "update": "measure the time of the optimizers' weight update",
    "overlap": "measure how much communication overlaps with the backward pass",
    "links": "compare methods of training over slow links",
    "exchange": "compare ways to combine gradients: all-reduces, parameter servers, gossip",
    "pipeline": "compare pipeline schedules at equal work",
    "squad": "fine-tune on questions in several layouts, and compare speed, scores and goodput",
}
_TRAIN = "train a system by a technique that the product lacks, such as int8 gradients or local SGD"
_STUDIES = {
    "study": "compare configurations by samples to the target, over many seeds",
    "paper": "check the paper's claims one by one",
}


def _command(name: str, text: str, module: str, takes_variables: bool = False) -> Command:
    """Return a command, whose module defines `add_arguments` and `run`."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        importlib.import_module(module).add_arguments(parser)

    def run(arguments: argparse.Namespace) -> int:
        code: int = importlib.import_module(module).run(arguments)
        return code

    return Command(f"lab {name}", text, add_arguments, run, takes_variables)


COMMANDS = (
    _command("train", _TRAIN, "lab.commands.train", takes_variables=True),
    *(_command(name, text, f"lab.bench.{name.replace('-', '_')}") for name, text in _BENCHES.items()),
    *(_command(name, text, f"lab.commands.{name}") for name, text in _STUDIES.items()),
)
