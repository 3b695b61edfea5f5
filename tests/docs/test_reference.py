"""docs/configuration.md and the page of commands agree with the schema and the parsers, and omit nothing."""

import argparse
import json
import re
import runpy
from pathlib import Path
from typing import Any, get_args

from bertbench.cli.commands import COMMANDS
from bertbench.config import load_system
from bertbench.config.load import schema
from bertbench.config.optimizer import OptimizerName
from bertbench.config.system import setting_names
from tests.docs.listing import REPOSITORY

REFERENCE: dict[str, Any] = runpy.run_path(str(REPOSITORY / "docs" / "site" / "reference.py"))
CONFIGURATION = (REPOSITORY / "docs" / "configuration.md").read_text()


def row_of(setting: str) -> list[str]:
    """The cells of a setting: name, type, default, closed division, text."""
    (line,) = [line for line in CONFIGURATION.splitlines() if line.startswith(f"| `{setting}` |")]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_the_page_of_settings_agrees_with_the_schema() -> None:
    assert REFERENCE["configuration"]() == CONFIGURATION, "run python -m docs.site.reference"


def test_the_page_has_every_setting() -> None:
    for setting in setting_names():
        if setting != "name":  # the file's name says it
            name = setting.removeprefix("hardware.")
            assert f"`{setting}`" in CONFIGURATION or (name != setting and f"`{name}`" in CONFIGURATION), setting


def test_every_setting_has_a_text_except_fields_of_mlperfs_description() -> None:
    definitions = json.loads(schema())["$defs"]
    without = {
        f"{section}.{name}"
        for section, content in definitions.items()
        for name, value in content.get("properties", {}).items()
        if section != "Hardware" and "description" not in value and "$ref" not in str(value)
    }
    assert without == set()


def test_a_row_has_type_default_and_what_the_closed_division_allows() -> None:
    optimizers = ", ".join(f"`{name}`" for name in get_args(OptimizerName))
    assert row_of("optimizer.name")[1:4] == [optimizers, "required", "`lamb`"]
    assert row_of("checkpoint.keep")[1:4] == ["whole number, at least 1", "`2`", "any"]
    assert row_of("schedule.decay_steps")[1:4] == [
        "whole number, at least 1", "not given", "`schedule.max_steps`",
    ]  # fmt: skip
    assert row_of("clip.divisor")[4].endswith("Only with clip.mode bucket.")


def test_the_example_of_a_file_loads(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```$", CONFIGURATION, re.MULTILINE | re.DOTALL)
    file = tmp_path / "mine.json"
    file.write_text(example)
    assert load_system(str(file)).global_batch_size == json.loads(example)["data"]["global_batch_size"]


def test_the_page_has_every_command_with_every_option() -> None:
    page = REFERENCE["commands"]()
    entries = dict(re.findall(r"^### `bertbench (.*?)`\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(entries) == [command.name for command in COMMANDS]
    for command in COMMANDS:
        parser = argparse.ArgumentParser(add_help=False)
        command.add_arguments(parser)
        # argparse lists a parser's options nowhere else
        shown = {action.option_strings[-1] for action in parser._actions if action.option_strings and action.help}
        hidden = {action.option_strings[-1] for action in parser._actions if action.help == argparse.SUPPRESS}
        listed = set(re.findall(r"^\| `(--[a-z0-9-]+)", entries[command.name], re.MULTILINE))
        assert listed >= shown - hidden, command.name
        assert not listed & hidden
    assert "| `--strict` |" in entries["judge"]
