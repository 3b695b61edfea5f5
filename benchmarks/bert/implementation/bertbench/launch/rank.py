"""Run this process as one rank of a system: meet the others, and end them with the cause if this one fails."""

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from bertbench.common.errors import BertbenchError, RunError, StoppedError
from bertbench.common.system_faults import uncaught
from bertbench.config import System
from bertbench.distributed.failure import end_process, report_to_launcher
from bertbench.distributed.network_errors import lost_contact
from bertbench.distributed.preemption import ignore_stops
from bertbench.distributed.ranks import Ranks
from bertbench.distributed.watchdog import Limits
from bertbench.distributed.world import World, join
from bertbench.machine.torch_version import untested

SEED_BITS = 32


@contextmanager
def as_rank(system: System, ranks: Ranks) -> Iterator[World]:
    """Meet the other ranks. A failure in the body records its cause for them and ends the process at once."""
    world: World | None = None
    try:
        if ranks.size != system.world_size:
            raise RunError(
                f"{ranks.size} ranks were started, but {system.name} describes {system.world_size}; "
                "start that many, or set hardware.number_of_nodes and launch.ranks_per_node"
            )
        launch = system.launch
        limits = Limits(launch.stall_timeout_s, launch.progress_timeout_s)
        with join(launch.device, launch.timeout_s, launch.bind_cores, limits, ranks) as world:
            if world.leads and (warning := untested()):
                print(f"warning: {warning}", file=sys.stderr, flush=True)
            yield world
    except StoppedError as error:
        # a launcher stops the rest when one rank has failed: then that rank's code counts
        first = world is None or world.failure.only_stopped()
        _leave(world, str(error), error.exit_code if first else RunError.exit_code)
    except BertbenchError as error:
        _leave(world, str(error), error.exit_code)
    except (OSError, RuntimeError) as error:
        message = uncaught(error)
        if message is not None:
            _leave(world, message, RunError.exit_code)
        if not lost_contact(error):
            raise
        cause = world.failure.reported() if world else None
        if cause:
            report_to_launcher(cause)
        if world:
            world.failure.leave()
        gone = f"rank {ranks.rank}: stops because another rank is gone ({str(error).splitlines()[0]})"
        end_process(None if cause else gone, RunError.exit_code)


def agreed_seed(world: World, seed: int | None) -> int:
    """Return the same seed on every rank: the one given, or one that rank 0 chooses at random."""
    return world.from_all(secrets.randbits(SEED_BITS) if seed is None else seed)[0]


def _leave(world: World | None, message: str, code: int) -> NoReturn:
    """End this process; the first rank to do so prints the cause, and the others end with it."""
    ignore_stops()
    if world is None:
        end_process(message, code)
    world.failure.begin()
    message = f"rank {world.rank}: {message}"
    first = world.failure.report(message)
    if StoppedError.SIGN not in message:  # other stopped ranks end by themselves
        message = world.failure.reported() or message
        world.failure.let_others_read()
    else:
        world.failure.leave()
    report_to_launcher(message)
    end_process(message if first else None, code)
