"""The command tree: one table, one parser, each command's code loaded only when it is called.

A command is a module with `add_arguments(parser)` and `run(arguments) -> exit code`. Every command takes --json:
JSON on standard output, everything else on standard error.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

from bertbench import __version__
from bertbench.common.errors import BertbenchError


class Command(NamedTuple):
    """One leaf of the tree."""

    path: str
    help: str
    module: str


COMMANDS = (
    Command("systems", "list the systems that come with the project", "systems"),
    Command("show", "print a system as a run sees it, resolved", "show"),
    Command("init", "write a system file for your cluster", "init"),
    Command("detect", "describe the machine at hand", "detect"),
    Command("data prepare", "make a dataset from text or published samples", "data_prepare"),
    Command("data shuffle", "put a dataset in random order over new shards", "data_shuffle"),
    Command("data verify", "recompute a dataset's checksums and counts", "data_verify"),
    Command("data show", "print what a dataset holds", "data_show"),
    Command("data export", "write a dataset in a published layout", "data_export"),
    Command("checkpoint import", "read a published checkpoint", "checkpoint_import"),
    Command("checkpoint export", "write weights for other programs", "checkpoint_export"),
    Command("checkpoint show", "list a checkpoint's tensors", "checkpoint_show"),
    Command("train", "train a system to its target", "train"),
    Command("evaluate", "score a checkpoint", "evaluate"),
    Command("plan", "a dry run of any rank without its machine", "plan"),
    Command("preflight", "check an allocation before a run", "preflight"),
    Command("predict", "forecast the time to train", "predict"),
    Command("launch", "start runs of a system", "launch"),
    Command("balance", "compare ways to deal batches to ranks", "balance"),
    Command("bench step", "measure the training step", "bench_step"),
    Command("bench data", "measure the loader", "bench_data"),
    Command("bench cost", "fit the cost of a sequence to this machine", "bench_cost"),
    Command("bench balance", "measure what dealing by cost is worth", "bench_balance"),
    Command("bench optim", "measure the optimisers", "bench_optim"),
    Command("bench overlap", "measure communication hidden behind the backward pass", "bench_overlap"),
    Command("bench layout", "measure pipeline bubbles and what layouts send", "bench_layout"),
    Command("study clip", "compare clip modes by samples to target", "study"),
    Command("study optimizer", "compare ADAM and LAMB by samples to target", "study"),
    Command("study parallel", "compare parallel layouts by time and goodput", "study_parallel"),
    Command("finetune squad", "fine-tune on SQuAD", "finetune_squad"),
    Command("finetune score", "score SQuAD predictions", "finetune_score"),
    Command("report", "print a table of runs", "report"),
    Command("package", "build a submission package", "package"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. A person's mistake is a message, never a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        parsed = _parser(_called(words)).parse_args(words)
        code: int = importlib.import_module(f"bertbench.commands.{parsed.module}").run(parsed)
        return code
    except BertbenchError as error:
        print(f"bertbench: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("bertbench: interrupted", file=sys.stderr)
        return 130


def _called(words: list[str]) -> Command | None:
    """The command that these words call, if they name one."""
    named = [command for command in COMMANDS if words[: len(command.path.split())] == command.path.split()]
    return named[0] if named else None


def _parser(called: Command | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bertbench", description="An MLPerf-style BERT benchmark.")
    parser.add_argument("--version", action="version", version=f"bertbench {__version__}")
    top = parser.add_subparsers(required=True, metavar="COMMAND")
    groups: dict[str, argparse._SubParsersAction[argparse.ArgumentParser]] = {}
    for command in COMMANDS:
        *group, name = command.path.split()
        if group and group[0] not in groups:
            inside = top.add_parser(
                group[0], help=", ".join(c.path.split()[1] for c in COMMANDS if c.path.split()[0] == group[0])
            )
            groups[group[0]] = inside.add_subparsers(required=True, metavar="COMMAND")
        leaf = (groups[group[0]] if group else top).add_parser(name, help=command.help, description=command.help)
        leaf.set_defaults(module=command.module, path=command.path)
        if command is called:
            leaf.add_argument("--json", action="store_true", help="print JSON on standard output")
            importlib.import_module(f"bertbench.commands.{command.module}").add_arguments(leaf)
    return parser
