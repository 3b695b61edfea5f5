"""docs/configuration.md agrees with the schema, and its example of a file loads."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

from bertbench.config import load_system
from tests.docs.listing import REPOSITORY

REFERENCE: dict[str, Any] = runpy.run_path(str(REPOSITORY / "docs" / "site" / "reference.py"))
CONFIGURATION = (REPOSITORY / "docs" / "configuration.md").read_text()


def test_the_page_of_settings_agrees_with_the_schema() -> None:
    assert REFERENCE["configuration"]() == CONFIGURATION, "run python -m docs.site.reference"


def test_the_example_of_a_file_loads(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```$", CONFIGURATION, re.MULTILINE | re.DOTALL)
    file = tmp_path / "mine.json"
    file.write_text(example)
    assert load_system(str(file)).global_batch_size == json.loads(example)["data"]["global_batch_size"]
