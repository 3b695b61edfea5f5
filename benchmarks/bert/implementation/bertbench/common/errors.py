"""The errors a person can cause. Each message says what was found, what was expected and what to do.

The command line prints the message without a traceback and exits with `exit_code`. Any other exception is a
defect of ours and keeps its traceback.
"""

import os

_READ_BY_LIBRARIES = (
    "BERTBENCH_", "CUDA_", "GLOO_", "KMP_", "LOGLEVEL", "MKL_", "NCCL_", "OMP_", "PYTORCH_", "TORCH", "TRITON_",
)  # fmt: skip
"""Beginnings of variables that a library or this program reads: torch reads dozens, some as it is imported."""
_FIRST_LETTERS = 300  # of an error; TORCH_LOGS lists every name that it knows

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


def refused_variable(error: BaseException) -> str | None:
    """Return, in a line, which environment variable an error is about; None if it names and quotes none."""
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
