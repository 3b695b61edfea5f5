"""Add arguments that several commands share, read the system that they name, and print answers and notes."""

import argparse
import json
import os
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bertbench.common.errors import ConfigError
from bertbench.common.paths import data_path
from bertbench.common.reads import Reads
from bertbench.common.system_faults import unwritable
from compliance.read.record import answer_json
from compliance.read.record import as_json as strict_json

if TYPE_CHECKING:
    from bertbench.config import System

WEIGHTS_HELP = "a weights file, a run (runs/SYSTEM/bert/result_<n>) or its snapshot (.../snapshots/step_<k>)"
_CHECKPOINT = "model.checkpoint"
SYSTEM_HELP = "name of a system, path of a system file, or a run"
Word = TypeVar("Word", bound=str)


def add_path(parser: argparse._ActionsContainer, name: str, metavar: str, text: str, **more: Any) -> None:
    """Add an argument that is a path; `more` goes to argparse."""
    parser.add_argument(name, type=Path, metavar=metavar, help=text, **more)


def add_number(parser: argparse._ActionsContainer, name: str, metavar: str, text: str, **more: Any) -> None:
    """Add an option that is a whole number of at least 1; any other value raises ConfigError."""

    def number(word: str) -> int:
        if not word.isdecimal() or int(word) < 1:
            raise ConfigError(f"{name} {word}: expected a whole number of at least 1")
        return int(word)

    parser.add_argument(name, type=number, metavar=metavar, help=text, **more)


def add_flag(parser: argparse._ActionsContainer, name: str, text: str) -> None:
    """Add an option without a value."""
    parser.add_argument(name, action="store_true", help=text)


def add_ruleset(parser: argparse.ArgumentParser, text: str, of_each_log: bool = False) -> None:
    """Add --ruleset, which takes the official checker's rulesets.

    The default is the newest one with BERT or, if `of_each_log`, None: each log's own.
    """
    from compliance import DEFAULT_RULESET, rulesets

    default = f"each log's own, or {DEFAULT_RULESET} if a log names none" if of_each_log else DEFAULT_RULESET
    parser.add_argument(
        "--ruleset",
        default=None if of_each_log else DEFAULT_RULESET,
        choices=rulesets(),
        metavar="R",
        help=f"{text} (default: {default})",
    )


def add_system_arguments(
    parser: argparse.ArgumentParser, reads: Reads, positional: bool = False, named_by: Collection[str] = ()
) -> None:
    """Add --set, for a command that `reads` a system file, and SYSTEM if `positional`.

    SYSTEM may be left out where one of the environment variables in `named_by` is exported.
    """
    parser.set_defaults(reads=reads)
    if positional:
        add_system(parser, optional=any(os.environ.get(name, "").strip() for name in named_by))
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="NAME=VALUE",
        help="override a setting, for example --set schedule.max_steps=100; may be repeated",
    )  # fmt: skip


def add_system(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    """Add SYSTEM with shell completion."""
    if optional:
        system = parser.add_argument("system", nargs="?", metavar="SYSTEM", help=SYSTEM_HELP)
    else:
        system = parser.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    system.completer = _systems  # type: ignore[attr-defined]  # argcomplete reads it


def _systems(**_: object) -> list[str]:
    """Return the names with which a shell completes SYSTEM."""
    from bertbench.config.load import system_names

    return system_names()


def passed_on(arguments: argparse.Namespace, *names: str, **changed: object) -> list[str]:
    """Return --set and the named options, if given, as words for another process; `changed` has other values."""
    values = {**vars(arguments), "set": arguments.overrides, **changed}
    words = []
    for name in ("set", *names):
        option, value = f"--{name.replace('_', '-')}", values[name]
        for item in value if isinstance(value, list) else [value]:
            if item is True:
                words.append(option)
            elif item is not None and item is not False:
                words += [option, str(item)]
    return words


def seed(text: str) -> int:
    """Return an option's seed, for argparse. Raises ArgumentTypeError unless it is a whole number of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 0")
    return int(text)


def whole_numbers(option: str, text: str, least: int = 1) -> list[int]:
    """Return an option's list of whole numbers. Raises ConfigError unless all are at least `least`."""
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = [least - 1]
    if min(numbers) < least:
        kind = "positive whole numbers" if least == 1 else f"whole numbers of at least {least}"
        raise ConfigError(f"{option} {text}: expected {kind}, separated by commas, such as 8,64")
    return numbers


def words_of(text: str, option: str, known: Collection[Word]) -> list[Word]:
    """Return the words of an option's comma-separated list, in the order of `known`.

    Raises ConfigError for unknown words.
    """
    words = text.split(",")
    if unknown := [word for word in words if word not in known]:
        raise ConfigError(f"{option}: unknown {', '.join(map(repr, unknown))}; choose from {', '.join(known)}")
    return [word for word in known if word in words]


def add_gpu_model(parser: argparse.ArgumentParser, text: str, *, any_name: bool = False) -> None:
    """Add --gpu-model, which takes the same names in every command, and with `any_name` any other name too."""
    from bertbench.config.load import gpu_models

    others = ", or any other name, which is written as given" if any_name else ""
    parser.add_argument(
        "--gpu-model", type=str if any_name else _card, metavar="NAME",
        help=f"{text}: {', '.join(gpu_models())}{others}",
    )  # fmt: skip


def _card(name: str) -> str:
    """Return the card that an option names, for argparse. Raises ArgumentTypeError for others."""
    from bertbench.config.load import gpu_card, gpu_models

    if known := gpu_card(name):
        return known
    raise argparse.ArgumentTypeError(f"{name!r}: not one of {', '.join(gpu_models())}")


def add_starting_weights(parser: argparse.ArgumentParser) -> None:
    """Add --weights, which overrides the system's model.checkpoint."""
    parser.add_argument(
        "--weights", action="append", default=[], dest="overrides", type=_weights_setting, metavar="PATH",
        help=f"weights to start from: {WEIGHTS_HELP} (default: the system's model.checkpoint)",
    )  # fmt: skip


def _weights_setting(path: str) -> str:
    """Return --weights as an override of model.checkpoint.

    Weights in the data folder are named relative to it, because a container mounts that folder elsewhere.
    """
    from bertbench.config.given import Override

    place = Path(path).absolute()
    data = data_path("").absolute()
    name = place.relative_to(data) if place.is_relative_to(data) else place
    value = str(name)
    with suppress(ValueError):  # a name such as 7 would be read as a number
        json.loads(value)
        value = json.dumps(value)
    return Override(f"{_CHECKPOINT}={value}", f"--weights {path}")


def check_new_file(out: Path) -> None:
    """Raise ConfigError if a file to write isn't the name of a new system file."""
    if out.suffix != ".json":
        raise ConfigError(f"--out {out}: expected a name that ends in .json; give another name")
    if out.exists():
        raise ConfigError(f"{out} exists already; remove it, or name another file with --out")


def emit(arguments: argparse.Namespace, content: object, *lines: str) -> None:
    """Print `content` as JSON that names the command if the user asked for it, or else the lines if there are any."""
    if arguments.json:
        print(answer_json(arguments.command, content))
    elif text := "\n".join(lines):
        print(text)


def emit_document(content: object) -> None:
    """Print JSON as a file for other programs: the same with and without --json."""
    print(strict_json(content))


def say(*lines: object) -> None:
    """Print lines that aren't part of the command's answer, on standard error."""
    for line in lines:
        print(line, file=sys.stderr)


def announce(arguments: argparse.Namespace, doing: str) -> None:
    """Print on standard error what a command is doing, before it imports code that takes seconds to load."""
    print(f"bertbench {arguments.command}: {doing} ...", file=sys.stderr, flush=True)


def system_of(arguments: argparse.Namespace, *modes: Reads) -> "System":
    """Return the system that a command is called with, with --set applied.

    Raises ConfigError as `load_system` does, for another task, and for settings that the command can't honour or, if
    `modes` are given, those modes of it.
    """
    from bertbench.config import load_system
    from bertbench.config.given import check_given, check_overrides
    from bertbench.launch.submission_name import shipped_for

    all_reads = modes or [arguments.reads]
    _check_one_checkpoint(arguments.overrides)
    try:
        arguments.system = shipped_for(arguments.system, arguments.overrides)
        system = load_system(arguments.system, arguments.overrides)
    except ConfigError:
        # whether an unread setting fits the others doesn't matter: report first that it isn't read
        for reads in all_reads:
            check_overrides(arguments.overrides, reads)
        raise
    for reads in all_reads:
        check_given(system, reads)
    return system


def _check_one_checkpoint(overrides: Collection[str]) -> None:
    """Raise ConfigError if --weights is given together with other weights: the last ones would win without a word."""
    from bertbench.config.given import Override, option_of

    naming_weights = [override for override in overrides if override.partition("=")[0] == _CHECKPOINT]
    if len(naming_weights) > 1 and any(isinstance(override, Override) for override in naming_weights):
        raise ConfigError(
            f"{' and '.join(map(option_of, naming_weights))} all name weights; leave all but one of them out"
        )


def say_unread(system: "System", reads: Reads) -> None:
    """Print a line that names the system file's settings that a command doesn't read, if there are any."""
    from bertbench.config.given import unread_line

    if line := unread_line(system, reads):
        say(line)


def write_file(path: Path, text: str, option: str = "--html") -> None:
    """Write the file that an option names. Raises ConfigError, with the option, if it can't be written."""
    try:
        path.write_text(text, encoding="utf-8", errors="replace")  # a log may hold half of a surrogate pair
    except OSError as error:
        raise ConfigError(unwritable(path, error, f"name another file with {option}")) from error
    say(f"wrote {path}")
