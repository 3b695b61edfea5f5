"""List the commands of `bertbench lab`. Each is a bench or a study; its module is loaded when the command is called."""

import argparse
import importlib
from collections.abc import Callable

from bertbench.cli.commands import Command

_BENCHES = {
    "step": "compare the speed of a training step with that of transformers' BERT",
    "ideas": "compare each optimization of a CPU's step with plain torch code",
    "time-to-target": "compare the time to the target with that of Hugging Face's Trainer",
    "loader": "compare the loader's speed with that of Hugging Face datasets",
    "assignment": "measure the speed-up of assigning samples to ranks by cost",
    "unequal": "measure the gain of assigning work by measured speed, with one slow rank",
    "kernels": "count and compile the GPU step's kernels without a GPU",
    "roofline": "compute a step's time from its kernels, and compare it with published results",
    "forecast": "measure the errors of forecasts of published results",
    "ablation": "compute what each method of the paper saves on 1,024 A100s",
    "scaling": "show speed-up and efficiency by number of ranks: measured, computed and published",
    "update": "measure the time of the optimizers' weight update",
    "overlap": "measure how much communication overlaps with the backward pass",
    "links": "compare methods of training over slow links",
    "exchange": "compare ways to combine gradients: all-reduces, parameter servers, gossip",
    "parallel": "compare the speed of parallel layouts",
    "pipeline": "compare pipeline schedules at equal work",
    "squad": "fine-tune on questions in several layouts, and compare speed, scores and goodput",
}
_STUDIES = {
    "batch": "compare batch sizes and learning-rate scaling rules, by samples and steps to the target",
    "buckets": "compare numbers of buckets and thresholds of bucket clipping",
    "compression": "compare compressed gradients by samples to the target",
    "optimizer": "compare optimizers by samples and seconds to the target",
}
"""Each command runs lab/commands/study.py with the definition of its name."""
_FORMATS = {
    "fp8": "compare products in fp8 with bf16 by samples to the target",
    "residual": "compare hidden states in bf16 with fp32 by samples to the target",
}
"""Each command runs lab/bench/number_formats.py with the comparison of its name."""
_OTHER_STUDIES = {
    "clip": "compare clip modes by samples to the target",
    "paper": "check the paper's claims one by one",
}
"""Each command has its own module."""


def _command(name: str, text: str, module: str, study: str | None = None) -> Command:
    """Return a command, whose module defines `add_arguments` and `run`, or makes them for `study`."""

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
    *(_command(name, text, "lab.bench.number_formats", study=name) for name, text in _FORMATS.items()),
    *(_command(name, text, f"lab.commands.{name}") for name, text in _OTHER_STUDIES.items()),
)
