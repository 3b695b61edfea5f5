"""Parse the command line, call the command, and print a user's mistake in one line."""

import argparse
import os
import re
import resource
import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import NoReturn

from bertbench import __version__
from bertbench.cli.commands import GROUPS, callable_by, called_by
from bertbench.cli.json_fields import json_help
from bertbench.common import children, environment
from bertbench.common.close_names import close_names, did_you_mean
from bertbench.common.errors import BertbenchError, ConfigError
from bertbench.common.reads import Reads, Unread
from bertbench.common.terminal import use_closest_signs
from bertbench.common.user_errors import user_error
from compliance.read.record import error_json
from compliance.read.source import CannotJudge
from compliance.streams import guarded, open_standard_streams, output_error

_MESSAGE_S = 3  # time for the first rank or node to print a message that all have
_UNKNOWN = "unrecognized arguments:"
"""How argparse begins a message about words that no option takes."""
_COMPLETING = "_ARGCOMPLETE"
"""Variable by which a shell requests completions of COMP_LINE instead of a run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A user's mistake prints a message, never a traceback.

    Without `arguments`, they are those of sys.argv, and the process exists for this command only.
    """
    if arguments is None:
        open_standard_streams()
        environment.prepare()
        if _COMPLETING in os.environ:
            import argcomplete

            argcomplete.autocomplete(_parser(os.environ["COMP_LINE"].split()[1:]))  # ends the process
    use_closest_signs(sys.stdout)
    return guarded("bertbench", partial(_main, arguments))


def _main(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if arguments is None:
            children.begin()
            _raise_open_files()
        return _run(words)
    except _UsageError as mistake:
        mistake.print(words)
        raise
    except KeyboardInterrupt as interrupt:
        return children.report_signal(interrupt)
    except Exception as error:  # torch's and the system's too: those that a user can fix are reported in one line
        explained = user_error(error)
        is_of_output = output_error() is not None and not isinstance(error, BertbenchError | CannotJudge)
        if explained is None or is_of_output:
            raise  # `guarded` reports what is wrong with standard output
        if not _said_by_another(explained):
            print(f"bertbench: {explained}", file=sys.stderr)
        if _asks_for_json(words):
            print(error_json(_name_of(words), str(explained), explained.exit_code))
        return explained.exit_code


def _said_by_another(error: Exception) -> bool:
    """On another rank or node than the first, wait for that one's message, and return whether it is enough.

    The ranks of a node make the same mistake, so only its first one prints it. Another node may have a cause of its
    own: it prints that, unless the first one ends meanwhile, which stops this process. Then that one has said the same,
    or what is worth more.
    """
    said_on_this_node = isinstance(error, ConfigError) and not children.on_first_rank()
    if children.on_first_node() and not said_on_this_node:
        return False
    try:
        time.sleep(_MESSAGE_S)
    except KeyboardInterrupt:
        return True
    return said_on_this_node


def _raise_open_files() -> None:
    """Let this process and its ranks open as many files as this user may: gloo opens a socket to every other rank."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS states a limit that it refuses
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _asks_for_json(words: Sequence[str]) -> bool:
    return "--json" in words


def _name_of(words: Sequence[str]) -> str:
    """Return the name of the command that the words call, or as much of one as they have."""
    try:
        command = called_by(words)
    except BertbenchError:  # the laboratory's, outside a checkout
        command = None
    return command.name if command else " ".join(words[:1])


def _run(words: list[str]) -> int:
    if words and words[0] == "help":
        words = [*words[1:], "--help"]
    command = called_by(words)
    if command is not None and command.reads_words:
        return command.run(argparse.Namespace(words=words[len(command.words) :]))
    sbatch_options: list[str] = []
    if command is not None and command.takes_sbatch_options and "--" in words:
        dashes = words.index("--")
        sbatch_options = words[dashes + 1 :]
        words = words[:dashes]
    arguments = _parser(words).parse_args(words)
    assert command is not None, "the parser refuses words that call no command"
    if command.takes_sbatch_options:
        arguments.sbatch_options = sbatch_options
    if command.takes_variables:
        from bertbench.launch.honour import honour

        honour(arguments, os.environ)
    return command.run(arguments)


class _UsageError(SystemExit):
    """A mistake in the words of a command line: its message, after the whole help if there is any."""

    def __init__(self, message: str, shown_help: str = "") -> None:
        super().__init__(2)
        self._message = message
        self._help = shown_help

    def print(self, words: Sequence[str]) -> None:
        """Print help and message, and with --json the error as JSON, alone on standard output."""
        if _asks_for_json(words):
            print(f"{self._help}{self._message}", file=sys.stderr)
            last_line = self._message.splitlines()[-1]
            print(error_json(_name_of(words), last_line, 2))
        else:
            print(self._help, end="")
            print(self._message, file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """Name the command, value, option or setting that a misspelt one may mean."""

    leaf: argparse.ArgumentParser | None = None
    """The parser of the called command. argparse reports unknown options by the main parser, which lacks its options.
    """

    def error(self, message: str) -> NoReturn:
        """Print the message, after the whole help if an argument is missing, else after usage; exit code 2."""
        if "arguments are required" in message:
            raise _UsageError(f"{self.prog}: {message}", self.format_help())
        leaf = self.leaf or self
        meant: list[str] = []
        if refused_value := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            choices = re.findall(r"[^\s',]+", refused_value[2])
            meant = close_names(refused_value[1], choices)
        elif message.startswith(_UNKNOWN):
            words = message.removeprefix(_UNKNOWN).split()
            meant = _options_meant(words, leaf)
        if meant:
            message = f"{re.sub(r' [(]choose from .*', '', message)}; {did_you_mean(meant)}"
        raise _UsageError(f"{self.format_usage()}{self.prog}: error: {message}")


def _options_meant(words: list[str], leaf: argparse.ArgumentParser) -> list[str]:
    """Return the command's options that unknown words may mean, and --set with the settings that they may mean."""
    by_last_name: dict[str, list[str]] = {}
    by_dotted_name: dict[str, list[str]] = {}
    if "--set" in leaf._option_string_actions:
        from bertbench.config.system import setting_names

        reads: Reads = leaf.get_default("reads")
        for setting in setting_names():
            if isinstance(reads.limit_on(setting), Unread):
                continue
            with_set = f"--set {setting}=VALUE"
            by_dotted_name[setting] = [with_set]
            by_last_name.setdefault(setting.rpartition(".")[2], []).append(with_set)
    by_last_name |= {option.lstrip("-"): [option] for option in leaf._option_string_actions}
    meant = []
    for word in words:
        if word.startswith("-") or "=" in word:  # `NAME=VALUE` lacks its --set
            typed = word.partition("=")[0].lstrip("-")
            options = by_dotted_name if "." in typed else by_last_name
            meant += [option for name in close_names(typed, options) for option in options[name]]
    return meant


def _parser(words: list[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands' names; only the command that `words` call gets its arguments."""
    called = called_by(words)
    parser = _Parser(
        prog="bertbench",
        description="Train BERT by MLPerf's rules, and judge MLPerf logs.",
        epilog=_listing(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"bertbench {__version__}")
    names = parser.add_subparsers(required=True, metavar="COMMAND")
    groups: dict[str, argparse._SubParsersAction[_Parser]] = {}
    for command in callable_by(words):
        *group, name = command.words
        if group:
            if group[0] not in groups:
                groups[group[0]] = names.add_parser(group[0]).add_subparsers(required=True, metavar="COMMAND")
            leaf = groups[group[0]].add_parser(name, description=command.help, help=command.help)
        else:  # the help lists commands of one word itself, by group
            leaf = names.add_parser(name, description=command.help)
        if command == called and not command.reads_words:
            leaf.add_argument("--json", action="store_true", help="print JSON on standard output")
            command.add_arguments(leaf)
            _append_json_help(leaf, command.name)
            leaf.set_defaults(command=command.name)
            parser.leaf = leaf
    return parser


def _append_json_help(leaf: argparse.ArgumentParser, command: str) -> None:
    """Let the help of a command end with what --json prints."""
    width = shutil.get_terminal_size().columns - 2  # as argparse does
    paragraphs = [textwrap.fill(leaf.epilog or "", width), json_help(command)]
    leaf.epilog = "\n\n".join(paragraph for paragraph in paragraphs if paragraph)
    leaf.formatter_class = argparse.RawDescriptionHelpFormatter  # argparse would fill the list of fields


def _listing() -> str:
    """Return the commands by group, for the help; commands of two words are listed by their first word."""
    lines = []
    for title, commands in GROUPS.items():
        lines.append(f"{title}:")
        for first, of_group in groupby(commands, key=lambda command: command.words[0]):
            leaves = list(of_group)
            names = ", ".join(command.words[-1] for command in leaves)
            text = leaves[0].help if names == first else names
            lines.append(f"  {first:<11}{text}")
    laboratory = "In a clone also: bertbench lab, the benches and studies of the manual"
    return "\n".join([*lines, "", "Options of a command: bertbench help COMMAND", laboratory])
