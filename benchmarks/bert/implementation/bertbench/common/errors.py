"""The errors a person can cause. Each message says what was found, what was expected and what to do.

The command line prints the message without a traceback and exits with `exit_code`. Any other exception is a
defect of ours and keeps its traceback.
"""

import os

TARGET_MISSED = 3
"""Exit code of a run that ended in order without reaching its target."""


class BertbenchError(Exception):
    """Base of every error that is meant for a person."""

    exit_code = 2


class ConfigError(BertbenchError):
    """A system file or an option asks for something impossible."""


class DataError(BertbenchError):
    """A dataset is missing, damaged, or not the one that the run needs."""


class CheckpointError(BertbenchError):
    """A checkpoint or a weights file is missing, damaged, or not the one that is needed."""


class PackageError(BertbenchError):
    """Results that can't be packaged, or a place that a package can't go to."""


class RefusedPackageError(PackageError):
    """The judge fails a package: a verdict, not a mistake in the command."""

    exit_code = 1


class RunError(BertbenchError):
    """A run could not start or continue."""

    exit_code = 1


class StoppedError(RunError):
    """A run was stopped from outside, and may be queued again; its message starts with SIGN."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h
    SIGN = "stopped by"


def system_reason(error: OSError) -> str:
    """Return the system's short reason for an error; HDF5 wraps it in paragraphs."""
    return os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
