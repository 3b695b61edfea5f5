"""submission_rules.adoc: the files of a package, and its system descriptions."""

from compliance.rules.rule import JSON_STANDARD, OLDEST, SUBMISSION_RULES, Rule, Source

_TREE = Source(SUBMISSION_RULES, "Directory structure, Training")
_REPOSITORY = Source("mlcommons/logging, repo_checker", "run_checks")
_DESCRIPTION = Source(SUBMISSION_RULES, "<system_desc_id>.json metadata")
_REPOSITORY_SINCE = "2.0.0"
"""The oldest ruleset that repo_checker takes."""
_RENAME = "rename, shrink, replace or remove them"

LAYOUT = Rule(
    "layout", _TREE, "A package has systems/, benchmarks/ and results/, and a description for each system's results",
    "add what is missing", since=OLDEST,
)  # fmt: skip
SOURCES = Rule(
    "sources", _TREE, "benchmarks/<benchmark>/implementations/ holds the sources that ran",
    "add the implementation's sources", since=OLDEST,
)  # fmt: skip
IMPLEMENTATION = Rule(
    "implementation", _TREE, "A folder of implementations/ has the files that repeat a system's runs", "add them",
    since=OLDEST,
)  # fmt: skip
FILE_NAME = Rule("file-name", _REPOSITORY, "No name has a space or a leading dot", _RENAME, since=_REPOSITORY_SINCE)
FILE_SIZE = Rule("file-size", _REPOSITORY, "No file is above 50 MB", _RENAME, since=_REPOSITORY_SINCE)
BROKEN_LINK = Rule("broken-link", _REPOSITORY, "No link is broken", _RENAME, since=_REPOSITORY_SINCE)
SYSTEM_DESCRIPTION = Rule(
    "system-description", _DESCRIPTION, "A system description is a JSON object that the official checker passes",
    "rewrite the system description with the fields that the submission rules list",
)  # fmt: skip
SYSTEM_FIELDS = Rule(
    "system-fields", Source(JSON_STANDARD, "4. Objects"), "No system description repeats a field",
    "write the field once", since=OLDEST,
)  # fmt: skip
SYSTEM_DIVISION = Rule(
    "system-division", _DESCRIPTION, "A system description's division is closed or open, in any case",
    "correct the description's division",
)  # fmt: skip
RULES = (
    LAYOUT, SOURCES, IMPLEMENTATION, FILE_NAME, FILE_SIZE, BROKEN_LINK, SYSTEM_DESCRIPTION, SYSTEM_FIELDS,
    SYSTEM_DIVISION,
)  # fmt: skip
