"""Turn any exception that a user can fix into a BertbenchError, with the text that the commands print.

The command line prints it; the functions of `import bertbench` raise it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from bertbench.common.errors import BertbenchError, RunError, refused_variable
from bertbench.common.system_faults import uncaught
from compliance.read.record import printable
from compliance.read.source import CannotJudge


def user_error(error: Exception) -> BertbenchError | None:
    """Return the error to show to the user instead of an exception; None if the exception is a bug in bertbench."""
    if isinstance(error, BertbenchError):
        return error
    if isinstance(error, CannotJudge):
        return BertbenchError(printable(str(error)))
    fault = uncaught(error)
    if fault is not None:
        return RunError(fault)
    refused = refused_variable(error)
    return None if refused is None else BertbenchError(refused)


@contextmanager
def user_errors() -> Iterator[None]:
    """In the body, or in a function that this decorates, raise BertbenchError for everything that a user can fix."""
    try:
        yield
    except Exception as error:  # libraries raise errors of any kind; an unexplained one is raised again
        explained = user_error(error)
        if explained is None or explained is error:
            raise
        raise explained from error
