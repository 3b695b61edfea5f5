"""Write docs/configuration.md from the schema of system files; return the pages of commands and of the judge's rules.

`python -m docs.site.reference` rewrites docs/configuration.md, and a test finds out if it is out of date. The other two
pages exist only on the site: pages.py adds them. The text of a setting is its docstring in config/, the text of an
option is its help in cli/, and the text of a rule stands beside its check in compliance/rules/.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(_REPOSITORY))  # because lab/ is never installed

from bertbench.cli.commands import GROUPS, Command  # noqa: E402
from bertbench.cli.json_fields import json_help  # noqa: E402
from bertbench.common.tables import markdown  # noqa: E402
from bertbench.config.closed import CLOSED_RULES  # noqa: E402
from bertbench.config.given import needs_of  # noqa: E402
from bertbench.config.load import schema  # noqa: E402
from bertbench.config.rules import AllowedValues  # noqa: E402
from compliance.__main__ import argument_parser  # noqa: E402
from compliance.ask import TOPICS  # noqa: E402
from compliance.rules import RULES  # noqa: E402
from compliance.rules.fixed_values import FIXED  # noqa: E402
from lab.commands import COMMANDS as LAB_COMMANDS  # noqa: E402

_CONFIGURATION = """\
# Configuration reference: every setting of a system file

A system file describes a machine, a model and a recipe. This page lists all its settings, in the order of its sections.
It is generated from the code (`python -m docs.site.reference`).

**Change a setting** for one command with `--set`. `config show` prints the system with all settings resolved:

```
bertbench config show cpu_demo --set schedule.max_steps=100
```

**Keep a change** in a file. A file that extends a system states only what differs:

```json
{
  "$schema": "schema.json",
  "extends": "cpu_demo",
  "description": "the demo with a larger batch",
  "data": {"global_batch_size": 64},
  "optimizer": {"learning_rate": 0.02}
}
```

Every command that takes a SYSTEM accepts the path of such a file. `bertbench config schema` prints the JSON schema, so
that an editor can complete names and check values. A misspelt name, a value of the wrong type, and settings that
contradict each other are refused, each with one message.

**How to read the tables.** "required" marks a setting without a default; most files inherit it by `extends`. The closed
division of MLPerf fixes some settings: the column "closed division" lists the values that it allows, or says "any". The
open division allows every value. "Only with" names the settings that must be set before a run reads this one.
"""

_COMMANDS = """\
# Command reference: every command and option

This page is built from the commands' own help. In a terminal, `bertbench help COMMAND` prints a command's part of it.

- SYSTEM is the name of a system (`bertbench config list`), the path of a system file, or a run. For a run, the command
  reads that run's configuration.
- `--set NAME=VALUE` overrides one [setting](configuration.md), and may be repeated.

[Exit codes](troubleshooting.md#exit-codes) are the same for all commands.

## JSON

With `--json`, a command prints its answer as JSON on standard output, and everything else on standard error:

```
bertbench report results/cpu_demo --json
```

An answer is an object, or a list of objects where a command answers about several things. Each object begins with
`command`: the command without its options, such as `config list`. The fields below each command are the others. Units
end a name: `_s` seconds, `_ms` milliseconds, `_gb` 10<sup>9</sup> bytes. An unknown number is `null`.

After a mistake, the answer is one object with `error` in place of the command's own fields:

```
{"command": "plan", "error": {"message": "found no system 'nosuch'; ...", "exit_code": 2}}
```

`message` is what standard error says, `exit_code` what the command returns. A log that can't be judged, a failed rank
and a missed target aren't mistakes: the answer then has a verdict, a status or problems.
"""

_RULES = """\
# The judge's rules

This page is built from the judge's code, and `python -m compliance rules` prints the same. [Judging](judging.md)
explains verdicts.

The documents are MLPerf's
[training_rules.adoc](https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc),
[power_measurement.adoc](https://github.com/mlcommons/training_policies/blob/master/power_measurement.adoc) and
[submission_rules.adoc](https://github.com/mlcommons/policies/blob/master/submission_rules.adoc), as of each round.
"""

_RULES_OF_TWO_SETTINGS = {
    "_checkpoint_is_mlperfs": ("model.checkpoint", "MLPerf's phase-1 checkpoint"),
    "_decay_lasts_all_steps": ("schedule.decay_steps", "`schedule.max_steps`"),
    "_evaluations_come_at_mlperfs_interval": ("evaluation.interval_samples", "MLPerf's formula"),
}
"""By the name of a rule of the closed division: the setting that it fixes, and the value."""
_PAGE = re.compile(r"docs/(\w+)\.md")
_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}

Schema = dict[str, Any]
"""JSON schema of a section or a setting."""


def configuration() -> str:
    """Return docs/configuration.md."""
    root = json.loads(schema())
    sections = dict(_sections(root, root["$defs"]))
    settings = {name: value for name, value in root["properties"].items() if name not in sections}
    text = [_CONFIGURATION, "## The file itself\n", _settings_table(settings, "", [])]
    for name, section in sections.items():
        required = section.get("required", [])
        text += [
            f"## `{name}`\n",
            f"{_one_line(section['description'])}\n",
            _settings_table(section["properties"], f"{name}.", required),
        ]
    return "\n".join(text)


def commands() -> str:
    """Return the page of commands, which isn't committed."""
    text = [_COMMANDS]
    for group, members in GROUPS.items():
        text.append(f"## {group.capitalize()}\n")
        for command in members:
            text += _command(command)
    text.append("## Laboratory\n")
    text.append("Benches and studies, for developers. They need a clone; `--help` after a command lists its options.\n")
    rows = [[f"`{lab.name}`", _sentence(lab.help)] for lab in LAB_COMMANDS]
    text.append(markdown(["command", "what it does"], rows) + "\n")
    return "\n".join(text)


def rules() -> str:
    """Return the page of the judge's rules, fixed values and questions, which isn't committed."""
    breaches = [
        [f"`{rule.id}`", rule.source.document, f"`{rule.source.section}`", rule.rounds, rule.says] for rule in RULES
    ]
    values = [[f"`{fixed.key}`", fixed.expected, fixed.section] for fixed in FIXED]
    topics = [[f"`{topic.id}`", topic.asks, topic.usual] for topic in TOPICS]
    text = [
        _RULES,
        "## Rules\n\nA breach fails the log or the package.\n",
        markdown(["rule", "document", "section", "rounds", "what it says"], breaches),
        "\n## Fixed values\n\nThe rule `reference-value` compares these keys of closed logs with the reference. Every "
        "other setting is free.\n",
        markdown(["key", "fixed value", "section of training_rules.adoc"], values),
        "\n## Questions\n\nA reviewer might ask these questions. None of them changes a verdict.\n",
        markdown(["question", "what is asked", "what is usual"], topics),
    ]
    return "\n".join(text)


def _sections(section: Schema, definitions: Schema, prefix: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield the dotted name and the schema of every section within a section, in file order."""
    for name, value in section["properties"].items():
        reference = _referred(value)
        if reference is not None:
            yield f"{prefix}{name}", definitions[reference]
            yield from _sections(definitions[reference], definitions, f"{prefix}{name}.")


def _referred(value: Schema) -> str | None:
    """Return the section's name if a setting is a section; None for a plain value."""
    for choice in [value, *value.get("anyOf", [])]:
        if "$ref" in choice:
            return str(choice["$ref"]).rpartition("/")[2]
    return None


def _settings_table(properties: Schema, prefix: str, required: list[str]) -> str:
    """Return the table of a section's settings; undocumented settings of MLPerf's description share one line."""
    documented = {name: value for name, value in properties.items() if "description" in value}
    undocumented = [name for name in properties if name not in documented and _referred(properties[name]) is None]
    rows = [
        [
            f"`{prefix}{name}`",
            _kind(value),
            "required" if name in required else _default(value),
            _allowed_in_closed().get(f"{prefix}{name}", "any"),
            " ".join([_one_line(value["description"]), *_condition(f"{prefix}{name}")]),
        ]
        for name, value in documented.items()
        if _referred(value) is None
    ]
    table = (
        markdown(["setting", "type", "default", "closed division", "what it does, and when to change it"], rows) + "\n"
    )
    if undocumented:
        names = ", ".join(f"`{name}`" for name in undocumented)
        table += f"\nThese fields are text, empty by default, under MLPerf's names: {names}.\n"
    return table


def _kind(value: Schema) -> str:
    """Return a setting's type in words."""
    if "anyOf" in value:
        return " or ".join(_kind(choice) for choice in value["anyOf"] if choice.get("type") != "null")
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if value["type"] == "array":
        return f"list: {_kind(value['items'])}"
    name = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}[value["type"]]
    bounds = [f"{words} {value[bound]:g}" for bound, words in _BOUNDS.items() if bound in value]
    return ", ".join([name, *bounds])


def _default(value: Schema) -> str:
    default = value.get("default")
    return "not given" if default is None else f"`{json.dumps(default, ensure_ascii=False)}`"


def _allowed_in_closed() -> dict[str, str]:
    """Return the values that the closed division allows, by setting."""
    allowed = {}
    for rule in CLOSED_RULES:
        if isinstance(rule, AllowedValues):
            allowed[rule.setting] = " or ".join(_shown(value) for value in rule.values)
        else:
            setting, values = _RULES_OF_TWO_SETTINGS[rule.__name__]
            allowed[setting] = values
    return allowed


def _shown(value: object) -> str:
    if value is None:
        return "not given"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _condition(setting: str) -> list[str]:
    needs = needs_of(setting)
    return [] if needs is None else [f"Only with {needs.words}."]


def _command(command: Command) -> Iterator[str]:
    """Yield the parts of a command's entry: heading, usage, what it does, arguments and options."""
    parser = argparse.ArgumentParser(prog=f"bertbench {command.name}", add_help=False)
    command.add_arguments(parser)
    shown_below = json_help(command.name)
    if command.reads_words:
        parser = argument_parser(parser.prog)
        shown_below = parser.epilog or ""
    actions = [action for action in parser._actions if argparse.SUPPRESS not in (action.help, action.dest)]
    actions = [action for action in actions if action.dest not in ("json", "help")]
    positional = [action for action in actions if not action.option_strings]
    usage = [parser.prog, *map(_usage, positional)]
    if len(actions) > len(positional):
        usage.append("[options]")
    yield f"### `bertbench {command.name}`\n"
    yield f"{_sentence(command.help)}\n"
    yield f"    {' '.join(usage)}\n"
    if actions:
        options = [action for action in actions if action.option_strings]
        formatter = argparse.HelpFormatter(parser.prog)
        rows = [
            [f"`{_spelling(action)}`", _sentence(formatter._expand_help(action))] for action in [*positional, *options]
        ]
        yield markdown(["argument", "meaning"], rows) + "\n"
    if shown_below:
        yield f"```\n{shown_below}\n```\n"


def _usage(positional: argparse.Action) -> str:
    name = _metavar(positional)
    match positional.nargs:
        case "+":
            return f"{name} ..."
        case "*":
            return f"[{name} ...]"
        case "?":
            return f"[{name}]"
    return name


def _spelling(action: argparse.Action) -> str:
    """Return an argument as a user types it."""
    if not action.option_strings:
        return _metavar(action)
    option = action.option_strings[-1]
    if action.nargs == 0:
        return option
    return f"{option} [{_metavar(action)}]" if action.nargs == "?" else f"{option} {_metavar(action)}"


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return "{" + action.metavar.replace("|", ",") + "}" if "|" in action.metavar else action.metavar
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    return "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()


def _sentence(text: str) -> str:
    """Return a line of help as a sentence of a page."""
    text = _one_line(text)
    if text.split()[0].strip(",;:").replace("-", "").isalpha():  # file names keep their case
        text = f"{text[:1].upper()}{text[1:]}"
    return text if text.endswith(".") else f"{text}."


def _one_line(text: str) -> str:
    """Return a text as one line, with links to the pages that it names."""
    return _PAGE.sub(r"[\1](\1.md)", " ".join(text.split()))


if __name__ == "__main__":
    (_REPOSITORY / "docs" / "configuration.md").write_text(configuration())
