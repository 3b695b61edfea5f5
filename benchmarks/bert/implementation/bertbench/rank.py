"""This process as one rank of a system: it meets the others, and a failure of its own doesn't leave them waiting."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from bertbench.config import System
from bertbench.errors import BertbenchError, RunError, StoppedError
from bertbench.rendezvous import Ranks
from bertbench.world import World, join, lost_contact


@contextmanager
def as_rank(system: System, ranks: Ranks) -> Iterator[World]:
    """Meet the other ranks. A failure in the body leaves word for them and ends the process at once."""
    world: World | None = None
    try:
        if ranks.size != system.world_size:
            raise RunError(
                f"{ranks.size} ranks were started, {system.name} describes {system.world_size}; "
                "start as many, or set hardware.number_of_nodes and launch.ranks_per_node"
            )
        with join(system.launch.device, system.launch.timeout_s, system.launch.bind_cores) as world:
            yield world
    except StoppedError as error:
        # a launcher stops the rest when one rank has failed: then that rank's code counts
        told = world is None or world.only_stopped()
        _leave(world, str(error), error.exit_code if told else RunError.exit_code)
    except BertbenchError as error:
        _leave(world, str(error), error.exit_code)
    except RuntimeError as error:
        if not lost_contact(error):
            raise
        _end(
            f"rank {ranks.rank}: stops because another rank is gone ({str(error).splitlines()[0]})", RunError.exit_code
        )


def _leave(world: World | None, message: str, code: int) -> NoReturn:
    """End this process without waiting for collectives that the other ranks will never enter."""
    if world is not None:
        world.report_failure(message)
        message = f"rank {world.rank}: {message}"
    _end(message, code)


def _end(message: str, code: int) -> NoReturn:
    print(f"bertbench: {message}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(code)
