"""submission_rules.adoc: the files of a package, and its system descriptions."""

from compliance.rules.rule import JSON_STANDARD, OLDEST, SUBMISSION_RULES, Rule, Source

_TREE = Source(SUBMISSION_RULES, "Directory structure, Training")
_REPOSITORY = Source("mlcommons/logging, repo_checker", "run_checks")
_DESCRIPTION = Source(SUBMISSION_RULES, "<system_desc_id>.json metadata")
_REPOSITORY_SINCE = "2.0.0"
"""The oldest ruleset that repo_checker accepts."""

LAYOUT = Rule(
    "layout", _TREE, "A package has systems/, benchmarks/ and results/, and describes each system that has results",
    "add the missing folder or description", since=OLDEST,
)  # fmt: skip
SOURCES = Rule(
    "sources", _TREE, "benchmarks/<benchmark>/implementations/ contains the source code that made the results",
    "add the source code", since=OLDEST,
)  # fmt: skip
IMPLEMENTATION = Rule(
    "implementation", _TREE, "A folder in implementations/ has the files that are needed to repeat a system's runs",
    "add the missing files", since=OLDEST,
)  # fmt: skip
FILE_NAME = Rule(
    "file-name", _REPOSITORY, "No name of a file or folder has a space or a leading dot", "rename or remove them",
    since=_REPOSITORY_SINCE,
)  # fmt: skip
FILE_SIZE = Rule(
    "file-size", _REPOSITORY, "No file is larger than 50 MB", "shrink or remove them", since=_REPOSITORY_SINCE
)
BROKEN_LINK = Rule(
    "broken-link", _REPOSITORY, "No link is broken", "correct the links, or replace them with files",
    since=_REPOSITORY_SINCE,
)  # fmt: skip
SYSTEM_DESCRIPTION = Rule(
    "system-description", _DESCRIPTION, "A system description is a JSON object that the official checker accepts",
    "write the system description with the fields that the submission rules list",
)  # fmt: skip
SYSTEM_FIELDS = Rule(
    "system-fields", Source(JSON_STANDARD, "4. Objects"), "No system description repeats a field",
    "write each field once", since=OLDEST,
)  # fmt: skip
SYSTEM_DIVISION = Rule(
    "system-division", _DESCRIPTION, "A system description's division is closed or open, in upper or lower case",
    "correct the description's division",
)  # fmt: skip
RULES = (
    LAYOUT, SOURCES, IMPLEMENTATION, FILE_NAME, FILE_SIZE, BROKEN_LINK, SYSTEM_DESCRIPTION, SYSTEM_FIELDS,
    SYSTEM_DIVISION,
)  # fmt: skip
