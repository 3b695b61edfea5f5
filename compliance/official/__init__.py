"""Run MLCommons' own programs in this process: the log checker and the tools for packages."""

DEFAULT_RULESET = "5.0.0"
"""The newest ruleset that accepts BERT."""
