"""What the report makes of logs and folders of logs."""

from pathlib import Path
from typing import Any

from bertbench.report.report_page import html
from bertbench.report.runs import summarized, systems

RULESET = "5.0.0"


def summaries(path: Path) -> list[dict[str, Any]]:
    return [summarized(group) for group in systems([path], RULESET)]


def page_of(path: Path) -> str:
    return html(systems([path], RULESET), summaries(path), path.parent)
