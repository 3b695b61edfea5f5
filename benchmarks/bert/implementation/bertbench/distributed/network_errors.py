"""Recognise torch's network errors: a lost peer, or variables for gloo and NCCL that keep ranks from connecting."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from bertbench.common.errors import RunError
from bertbench.common.system_faults import uncaught

_OF_THE_NETWORK = ("GLOO_", "NCCL_", "TORCH_NCCL_", "TORCH_GLOO_")
_SET_BY_AGENT = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")  # torch's elastic agent, for its ranks
# Messages of gloo, NCCL and the store about a lost peer.
_LOST_CONTACT = (
    "closed by peer",
    "reset by peer",
    "Broken pipe",
    "Timed out",
    "timed out",
    "NCCL communicator was aborted",
    "remote process exiting prematurely",  # ncclRemoteError
)


def lost_contact(error: BaseException) -> bool:
    """Return whether an error of torch means that another rank is gone or silent, not that this one has a bug."""
    text = str(error)
    return isinstance(error, RuntimeError) and any(sign in text for sign in _LOST_CONTACT)


def network_variables() -> list[str]:
    """Return the variables for gloo and NCCL that are set, as NAME=VALUE."""
    return [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name.startswith(_OF_THE_NETWORK) and (name, value) != _SET_BY_AGENT
    ]


@contextmanager
def naming_network_variables(backend: str, set_by_hand: list[str]) -> Iterator[None]:
    """Raise RunError instead of torch's error if the body fails and variables that were set by hand may be why."""
    try:
        yield
    except RuntimeError as error:
        if lost_contact(error) or uncaught(error) or not set_by_hand:
            raise
        reason = str(error).rpartition("Last error:")[2].strip().splitlines()[0]  # NCCL's last line says most
        raise RunError(
            f"{socket.gethostname()}: {backend} can't start ({reason}); correct or unset the variables that are set "
            f"for the network: {', '.join(set_by_hand)}"
        ) from error
