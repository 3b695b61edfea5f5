"""What the report makes of logs and folders of logs."""

from pathlib import Path
from typing import Any

from bertbench.report.report_page import html
from bertbench.report.runs import summarized, systems


def summaries(path: Path) -> list[dict[str, Any]]:
    return [summarized(group) for group in systems([path])]


def page_of(path: Path) -> str:
    return html(systems([path]), "5.0.0")
