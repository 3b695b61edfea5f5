"""Define the errors that a user can fix. Each message says what was found, what was expected and what to do.

The command line prints the message without a traceback and exits with `exit_code`. Any other exception is a bug in
bertbench and keeps its traceback.
"""

import os

_READ_BY_LIBRARIES = (
    "BERTBENCH_", "CUDA_", "GLOO_", "KMP_", "LOGLEVEL", "MKL_", "NCCL_", "OMP_", "PYTORCH_", "TORCH", "TRITON_",
)  # fmt: skip
"""Prefixes of variables that a library or this program reads. torch reads dozens, some while it is imported."""
_FIRST_LETTERS = 300  # of an error's text that are searched; an error about TORCH_LOGS then lists all names

TARGET_MISSED = 3
"""Exit code of a run that ended normally without reaching its target."""


class BertbenchError(Exception):
    """Base of every error that is meant for the user."""

    exit_code = 2


class ConfigError(BertbenchError):
    """A system file or an option asks for something impossible."""


class DataError(BertbenchError):
    """A dataset is missing, damaged, or not the one that the run needs."""


class CheckpointError(BertbenchError):
    """A checkpoint or a weights file is missing, damaged, or not the one that is needed."""


class PackageError(BertbenchError):
    """Results can't be packaged, or the package can't be written where it was asked for."""


class RefusedPackageError(PackageError):
    """The judge fails a package. This is a verdict, not a mistake in the command."""

    exit_code = 1


class RunError(BertbenchError):
    """A run could not start or continue."""

    exit_code = 1


class StoppedError(RunError):
    """A run was stopped by a signal, and may be queued again; its message starts with SIGN."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h
    SIGN = "stopped by"


def system_reason(error: OSError) -> str:
    """Return the operating system's short reason for an error, which HDF5 wraps in paragraphs."""
    return os.strerror(error.errno) if error.errno else str(error).splitlines()[0]


def check_whole_number(name: str, number: int, least: int) -> None:
    """Raise ConfigError unless the argument `name` of a Python function is a whole number of at least `least`."""
    is_whole = isinstance(number, int) and not isinstance(number, bool)
    if not is_whole or number < least:
        raise ConfigError(f"{name}={number!r}: expected a whole number of at least {least}")


def refused_variable(error: BaseException) -> str | None:
    """Return a line about the environment variable that an error names or whose value it quotes; else None."""
    text = str(error)[:_FIRST_LETTERS]
    for name, value in sorted(os.environ.items()):
        if not name.startswith(_READ_BY_LIBRARIES):
            continue
        quotations = (f"'{value}'".lower(), f'"{value}"'.lower())
        is_quoted = value != "" and any(quotation in text.lower() for quotation in quotations)
        if name in text or is_quoted:
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            reason = lines[0] if lines else type(error).__name__
            return f"{name} is {value!r}, which is refused ({reason}); correct or unset it"
    return None
