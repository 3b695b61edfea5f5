"""The results that the report derives from logs and folders of logs."""

from pathlib import Path

from bertbench.runs.report_page import report_page
from bertbench.runs.run_groups import GroupSummary, judged_groups, summarized

RULESET = "5.0.0"


def summaries(path: Path) -> list[GroupSummary]:
    return [summarized(group) for group in judged_groups([path], RULESET)]


def page_of(path: Path) -> str:
    return report_page(judged_groups([path], RULESET), summaries(path), path.parent)
