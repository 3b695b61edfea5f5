"""Parse the command line: one table, one parser, each command's code loaded only when it is called.

A command is a module with `add_arguments(parser)` and `run(arguments) -> exit code`. If its code loads torch, which
takes seconds, commands/arguments.py adds its arguments, and the system is read before that code is loaded. Every
command takes --json: JSON on standard output, everything else on standard error.
"""

import argparse
import difflib
import importlib
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple, NoReturn

from bertbench import __version__
from bertbench.common import children
from bertbench.common.errors import BertbenchError, RunError, refused_variable
from bertbench.common.system_faults import uncaught
from bertbench.common.terminal import use_closest_signs
from compliance.read.record import printable
from compliance.read.source import CannotJudge
from compliance.streams import guarded, open_standard_streams, output_error

_LAB = "lab"
_ALIKE = 0.7  # of difflib's ratio: its own 0.6 takes --lr for --help
_COMPLETING = "_ARGCOMPLETE"
"""Variable by which a shell requests completions of COMP_LINE instead of a run."""


class Command(NamedTuple):
    """One leaf of the tree."""

    path: str
    help: str
    package: str = "bertbench.commands"
    """Its module there is named as it is."""

    apart: bool = False
    """Whether its arguments are separate from code that loads torch; SYSTEM and --set are then checked first."""

    takes_variables: bool = False
    """Whether it honours the variables that published submissions export (launch/honour.py)."""

    doing: str = ""
    """What it says it does before code that takes seconds to load."""

    reads_words: bool = False
    """Whether it parses its own arguments, because it is another program."""

    @property
    def code(self) -> str:
        """Return the name of the module with `run`."""
        module = re.sub("[ -]", "_", self.path.removeprefix(f"{_LAB} "))
        return f"{self.package}.{module}"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add its arguments to its parser."""
        package, _, module = self.code.rpartition(".")
        if self.apart:
            getattr(importlib.import_module(f"{package}.arguments"), module)(parser)
        else:
            importlib.import_module(self.code).add_arguments(parser)


GROUPS: dict[str, tuple[Command, ...]] = {
    "set up": (
        Command("detect", "describe this machine"),
        Command("systems", "list the project's systems"),
        Command("init", "write a system file for your cluster", apart=True, doing="compares known batches"),
        Command("show", "print a system's resolved configuration"),
        Command("fit", "adapt a system to fewer or smaller devices", apart=True, doing="counts memory"),
        Command("predict", "forecast the time to train", doing="forecasts published results and yours"),
    ),
    "data": (
        Command("data prepare", "make a dataset from text or published samples"),
        Command("data verify", "check a dataset, or a download of MLCommons' files"),
        Command("data shuffle", "put a dataset in random order over new shards"),
        Command("data show", "describe a dataset"),
        Command("data export", "write a dataset in a published layout"),
        Command("checkpoint import", "read a published checkpoint"),
        Command("checkpoint show", "list a checkpoint's tensors"),
        Command("checkpoint export", "write weights for other programs"),
    ),
    "run": (
        Command("plan", "dry-run any rank without its machine", apart=True, doing="counts memory and steps"),
        Command("preflight", "check an allocation before a run", apart=True),
        Command("launch", "start runs of a system", apart=True, takes_variables=True),
        Command("train", "train a system to its target", apart=True, takes_variables=True),
        Command("evaluate", "score a checkpoint", apart=True),
        Command("fill-mask", "predict the masked words of a text"),
        Command("finetune squad", "fine-tune on SQuAD", apart=True),
        Command("finetune score", "score SQuAD predictions"),
        Command("balance", "compare methods of dealing batches to ranks"),
        Command("bench cost", "fit the cost of a sequence to this machine"),
    ),
    "follow": (
        Command("watch", "show a run's page in the terminal, live or finished"),
        Command("runs", "list the runs in LOGDIR"),
        Command("report", "print a table of runs"),
        Command("compare", "compare two runs, or two sets of runs"),
        Command("track", "record finished runs in TensorBoard, MLflow or W&B"),
    ),
    "submit": (
        Command("judge", "judge logs: the same as python -m compliance", reads_words=True),
        Command("rcp", "make reference convergence points, or judge by them"),
        Command("package", "build a submission package"),
    ),
    "lab": (Command("lab", "measure and study beside rivals, in a checkout"),),
}
"""Commands in the order in which one meets them."""
COMMANDS = tuple(command for group in GROUPS.values() for command in group)


def table(words: Sequence[str]) -> tuple[Command, ...]:
    """Return the commands that `words` may call: the laboratory's own if they begin with its name.

    Raises ConfigError if they do and this is no checkout.
    """
    if list(words[:1]) != [_LAB]:
        return COMMANDS
    from bertbench.commands import lab  # noqa: PLC0415 - other commands don't need it

    product = (command for command in COMMANDS if command.path != _LAB)
    return (*product, *(Command(f"{_LAB} {name}", text, package) for name, text, package in lab.commands()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A user's mistake prints a message, never a traceback.

    Without `arguments`, this process is the command: they are sys.argv's.
    """
    if arguments is None:
        open_standard_streams()
        if _COMPLETING in os.environ:
            import argcomplete  # noqa: PLC0415 - only completion needs it

            argcomplete.autocomplete(_parser(os.environ["COMP_LINE"].split()[1:]))  # ends the process
    use_closest_signs(sys.stdout)
    return guarded("bertbench", partial(_main, arguments))


def _main(arguments: Sequence[str] | None) -> int:
    try:
        if arguments is None:
            children.begin()
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except BertbenchError as error:
        print(f"bertbench: {error}", file=sys.stderr)
        return error.exit_code
    except CannotJudge as error:
        print(f"bertbench: {printable(str(error))}", file=sys.stderr)
        return BertbenchError.exit_code
    except KeyboardInterrupt as interrupt:
        return children.said(interrupt)
    except Exception as error:  # of torch and the system, too: what a person can mend is said in a line
        if output_error() is not None:
            raise  # `guarded` says it
        fault = uncaught(error) if isinstance(error, OSError) else None
        if fault is not None:
            print(f"bertbench: {fault}", file=sys.stderr)
            return RunError.exit_code
        refused = refused_variable(error)
        if refused is None:
            raise
        print(f"bertbench: {refused}", file=sys.stderr)
        return BertbenchError.exit_code


def _run(words: list[str]) -> int:
    command = _called(words)
    if command is not None and command.reads_words:
        parsed = argparse.Namespace(words=words[len(command.path.split()) :])
    else:
        parsed = _parser(words).parse_args(words)
    assert command is not None, "the parser refuses words that call no command"
    if command.takes_variables:
        from bertbench.launch.honour import honour  # noqa: PLC0415 - few commands have them

        honour(parsed, os.environ)
    if command.apart and "system" in parsed:
        from bertbench.commands import system_of  # noqa: PLC0415 - pydantic, which other commands don't need

        system_of(parsed)  # raises its errors early
    if command.doing:
        print(f"bertbench {command.path}: {command.doing} ...", file=sys.stderr, flush=True)
    code: int = importlib.import_module(command.code).run(parsed)
    return code


class _Parser(argparse.ArgumentParser):
    """Name the closest command, value or option after a misspelt one."""

    leaf: argparse.ArgumentParser | None = None
    """The called command's, whose options an error of the whole command line doesn't know."""

    def error(self, message: str) -> NoReturn:
        """Print the message, after the whole help if an argument is missing, else after usage; exit code 2."""
        if "arguments are required" in message:
            self.print_help()
            self.exit(2, f"{self.prog}: {message}\n")
        leaf = self.leaf or self
        known = [*leaf._option_string_actions]
        unknown = "unrecognized arguments:"
        if found := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            given, known = [found[1]], re.findall(r"[^\s',]+", found[2])
        else:
            given = re.findall(r"--[^\s=]+", message.removeprefix(unknown))
        if message.startswith(unknown) and "--set" in known:
            self._name_settings(message, message.removeprefix(unknown).split(), leaf.prog)
        close = [*dict.fromkeys(one for word in given for one in difflib.get_close_matches(word, known, 1, _ALIKE))]
        if close and not set(close) & set(given):
            message = f"{re.sub(r' [(]choose from .*', '', message)}; did you mean {' or '.join(close)}?"
        super().error(message)

    def _name_settings(self, message: str, words: list[str], program: str) -> None:
        """End with the settings that unknown options mean; return if they mean none."""
        from bertbench.commands.field_options import no_epochs, settings_meant  # noqa: PLC0415 - for this mistake only

        finetunes = program.endswith("finetune squad")
        if meant := settings_meant(words, finetunes):
            super().error(f"{message}; a system's settings are given with --set: {' '.join(meant)}")
        if no_epochs(words, finetunes):
            super().error(f"{message}; a run ends at its target, and at the latest after --set schedule.max_steps=N")


def _called(words: list[str]) -> Command | None:
    """Return the command that these words call, if any."""
    return next((one for one in table(words) if words[: len(one.path.split())] == one.path.split()), None)


def _parser(words: list[str]) -> argparse.ArgumentParser:
    commands, called = table(words), _called(words)
    parser = _Parser(
        prog="bertbench", description="An MLPerf-style BERT benchmark.", epilog=_listing(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"bertbench {__version__}")
    top = parser.add_subparsers(required=True, metavar="COMMAND")
    groups: dict[str, argparse._SubParsersAction[_Parser]] = {}
    for command in commands:
        *group, name = command.path.split()
        if group and group[0] not in groups:
            groups[group[0]] = top.add_parser(group[0]).add_subparsers(required=True, metavar="COMMAND")
        if group:  # the help lists commands of one word itself, by group
            leaf = groups[group[0]].add_parser(name, description=command.help, help=command.help)
        else:
            leaf = top.add_parser(name, description=command.help)
        if command == called and not command.reads_words:
            leaf.add_argument("--json", action="store_true", help="print JSON on standard output")
            command.add_arguments(leaf)
            leaf.set_defaults(command=command.path)
            parser.leaf = leaf
    return parser


def _listing() -> str:
    """Return the commands by group, for the help; those of two words under their first."""
    lines = []
    for title, commands in GROUPS.items():
        lines.append(f"{title}:")
        for first, several in groupby(commands, key=lambda command: command.path.split()[0]):
            leaves = list(several)
            names = [command.path.removeprefix(f"{first} ") for command in leaves]
            lines.append(f"  {first:<11}{leaves[0].help if names == [first] else ', '.join(names)}")
    return "\n".join(lines)
