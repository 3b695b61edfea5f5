"""submission_rules.adoc: the files of a package, and its system descriptions."""

from compliance.rules.rule import OLDEST, SUBMISSION_RULES, Rule, Source

_TREE = Source(SUBMISSION_RULES, "Directory structure, Training")
_REPOSITORY = Source("mlcommons/logging, repo_checker", "run_checks")
_DESCRIPTION = Source(SUBMISSION_RULES, "<system_desc_id>.json metadata")
_RENAME = "rename, shrink, replace or remove them"

LAYOUT = Rule(
    "layout", _TREE, "A package has systems/, benchmarks/ and results/, and a description for each system's results",
    "add what is missing; a result is of runs on its own system", since=OLDEST,
)  # fmt: skip
SOURCES = Rule(
    "sources", _TREE, "benchmarks/<benchmark>/implementations/ holds the sources that ran",
    "add the implementation's sources", since=OLDEST,
)  # fmt: skip
IMPLEMENTATION = Rule(
    "implementation", _TREE, "A folder of implementations/ has the files that repeat a system's runs", "add them",
    since=OLDEST,
)  # fmt: skip
FILE_NAME = Rule(
    "file-name", _REPOSITORY, "No name has a space, a leading dot or a control character", _RENAME, since=OLDEST
)
FILE_SIZE = Rule("file-size", _REPOSITORY, "No file is above 50 MB", _RENAME, since=OLDEST)
BROKEN_LINK = Rule("broken-link", _REPOSITORY, "Links lead to files of the package", _RENAME, since=OLDEST)
SYSTEM_DESCRIPTION = Rule(
    "system-description", _DESCRIPTION, "A system description is a JSON object that the official checker passes",
    "rewrite the system description with the fields that the submission rules list",
)  # fmt: skip
SYSTEM_DIVISION = Rule(
    "system-division", _DESCRIPTION, "A system description's division is closed or open, in lower case",
    "correct the description's division",
)  # fmt: skip
RULES = (
    LAYOUT, SOURCES, IMPLEMENTATION, FILE_NAME, FILE_SIZE, BROKEN_LINK, SYSTEM_DESCRIPTION, SYSTEM_DIVISION,
)  # fmt: skip
