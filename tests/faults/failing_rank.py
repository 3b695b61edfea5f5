"""Start two ranks; rank 1 fails before, in or after meeting: `python -m tests.faults.failing_rank MOMENT SYSTEM`.

The first process is the launcher. It starts two ranks with the same words, and its exit code is theirs.
"""

import os
import sys
from dataclasses import replace

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from bertbench.common.errors import RunError
from bertbench.config import System, load_system
from bertbench.distributed.ranks import launched_ranks
from bertbench.launch.agent import agent_of
from bertbench.launch.local import how_ended
from bertbench.launch.rank import as_rank

MEETING_S = 300
BEFORE, IN, AFTER = "before meeting", "in meeting", "after meeting"
MESSAGES = {
    BEFORE: "3 ranks were started, but tiny describes 2",
    IN: "rank 0 of 2 was started twice",
    AFTER: "rank 1: it fails after meeting",
}


def launch(moment: str, system: System) -> int:
    """Start the ranks, and return the exit code of the run."""
    try:
        agent_of(system)("-m", "tests.faults.failing_rank", moment, system.argument)
        return 0
    except ChildFailedError as failed:
        return how_ended(failed.failures, out_of_memory=False).code


def be_rank(moment: str, system: System) -> None:
    """Meet the other rank. Rank 1 fails at the given moment, while rank 0 waits for it."""
    ranks = launched_ranks(os.environ)
    assert ranks is not None
    if ranks.rank == 1 and moment == BEFORE:
        ranks = replace(ranks, size=3)
    if ranks.rank == 1 and moment == IN:
        ranks = replace(ranks, rank=0)
    with as_rank(system, ranks) as world:
        if world.rank == 1:
            raise RunError("it fails after meeting")
        world.barrier()


if __name__ == "__main__":
    words = sys.argv[1:]
    read = load_system(words[1], [f"launch.timeout_s={MEETING_S}"])
    if "RANK" in os.environ:
        be_rank(words[0], read)
    else:
        sys.exit(launch(words[0], read))
