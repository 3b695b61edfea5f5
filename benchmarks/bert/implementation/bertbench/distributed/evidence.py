"""Record evidence when a run hangs: a rank's thread stacks, and the collectives of torch's flight recorder."""

import json
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch._C import _distributed_c10d

from bertbench.common.paths import PACKAGE

FOLDER = "hang"
# torch's recorders; each returns the collectives of its own backend only
_RECORDERS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")


def place_of(thread: threading.Thread) -> str:
    """Return the line of our code that a thread is in, such as `loading/loader.py:121`; empty if it is in none."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            return f"{path.relative_to(PACKAGE)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def waiting_in() -> str:
    """Return the collective that this rank waits in, with its number in its group; else its main thread's place.

    Sums in shared memory aren't torch's, so only the place shows them. If it waits in several collectives, return the
    oldest, because the others wait for it.
    """
    waiting = [entry for entry in _recorded(active=True) if not entry.get("retired")]
    if not waiting:
        return place_of(threading.main_thread())
    first = min(waiting, key=lambda entry: entry.get("record_id", 0))
    name = str(first.get("profiling_name")).rpartition(":")[2]
    return f"{name} {first.get('collective_seq_id')} of {' '.join(map(str, first.get('process_group', [])[1:]))}"


def write_stacks(folder: Path, rank: int) -> None:
    """Write this rank's stacks to rank_<k>.txt, and its last few thousand collectives to rank_<k>.json."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = [
        f"{names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    ]
    with suppress(OSError):  # if the disk is full or hangs for this rank, the other ranks' evidence must suffice
        folder.mkdir(exist_ok=True)
        (folder / f"rank_{rank}.txt").write_text("\n".join(stacks), encoding="utf-8")
        (folder / f"rank_{rank}.json").write_text(json.dumps(_recorded(), indent=1) + "\n", encoding="utf-8")


def _recorded(active: bool = False) -> list[dict[str, Any]]:
    """Return the entries of all recorders."""
    entries: list[dict[str, Any]] = []
    for name in _RECORDERS:
        if recorder := getattr(_distributed_c10d, name, None):
            with suppress(RuntimeError, ValueError, TypeError):
                entries += json.loads(recorder(True, active)).get("entries", [])
    return entries
