"""The results that the report derives from logs and folders of logs."""

from pathlib import Path

from bertbench.runs.groups import Group, judged_groups
from bertbench.runs.report_page import report_page

RULESET = "5.0.0"


def groups_of(path: Path) -> list[Group]:
    return judged_groups([path], RULESET)


def page_of(path: Path) -> str:
    return report_page(groups_of(path), path.parent)
