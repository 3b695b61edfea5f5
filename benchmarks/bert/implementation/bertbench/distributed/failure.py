"""Why a run ends: the rank that fails records the cause in the store, and all ranks end by the first cause.

One thread of a process ends it: the one that begins to. So a failure is printed once, on one line.
"""

import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from torch.distributed.distributed_c10d import Store

from bertbench.common.errors import StoppedError
from bertbench.distributed.rendezvous import Ranks, absent

FAILURE_KEY = "bertbench/failure"
_LEFT_KEY = "bertbench/left"
_TELLERS_KEY = "bertbench/tellers"
_LAST_WORD_S = 3.0
READ_EVERY_S = 2.0
"""How often, at least, every rank looks whether there is a cause."""
_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # where torch's elastic agent looks for the cause


class FailureReport:
    """The causes that ranks record as they end; a store that is gone with its process answers nothing."""

    def __init__(self, store: Store, ranks: Ranks) -> None:
        self._store = store
        self._ranks = ranks
        self._ending = threading.RLock()
        if ranks.rank == 0:
            store.compare_set(FAILURE_KEY, "", "")  # so that it can be read without waiting for it

    def begin(self) -> None:
        """From here on this thread ends the process; waits, for the end, if another one does already."""
        self._ending.acquire()

    def begin_within(self, within_s: float) -> bool:
        """As `begin`, but gives up after some seconds: whether it is this thread now."""
        return self._ending.acquire(timeout=within_s)

    def claim(self, text: str) -> None:
        """Record why the run ends, unless a cause is recorded."""
        with suppress(RuntimeError, OSError):
            self._store.compare_set(FAILURE_KEY, "", text)

    def report(self, text: str) -> bool:
        """As `claim`; return whether this rank reports first, and so is the one to print."""
        self.claim(text)
        try:
            return self._store.add(_TELLERS_KEY, 1) == 1
        except (RuntimeError, OSError):
            return True

    def reported(self) -> str | None:
        """Return why the run ends, if a rank could record it."""
        try:
            return self._store.get(FAILURE_KEY).decode() or None if self._store.check([FAILURE_KEY]) else None
        except (RuntimeError, OSError):
            return None

    def only_stopped(self) -> bool:
        """Whether no rank has failed, but for those that were stopped; no if the store is gone."""
        try:
            return not (reported := self._store.get(FAILURE_KEY).decode()) or StoppedError.SIGN in reported
        except (RuntimeError, OSError):
            return False

    def leave(self) -> None:
        """Record that this rank ends, so that none counts it among the lost ones."""
        with suppress(RuntimeError, OSError):
            self._store.set(f"{_LEFT_KEY}/{self._ranks.rank}", "")

    def silent_ranks(self) -> list[int]:
        """Ranks that don't `leave` within some seconds; none as soon as one has said what went wrong with it."""
        end = time.monotonic() + _LAST_WORD_S
        while silent := self._here():
            reported = self.reported()
            if reported and StoppedError.SIGN not in reported:  # to be stopped is nobody's cause
                return []
            if time.monotonic() > end:
                break
            time.sleep(0.05)
        return silent

    def let_others_read(self, lost: int = 0) -> None:
        """On rank 0, stay until all but the lost ranks have left, or some seconds: the store may be in this process."""
        self.leave()
        end = time.monotonic() + READ_EVERY_S + _LAST_WORD_S
        while self._ranks.rank == 0 and len(self._here()) > lost and time.monotonic() < end:
            time.sleep(0.05)

    def _here(self) -> list[int]:
        """Ranks that have not left, as far as the store knows."""
        try:
            return absent(self._store, _LEFT_KEY, self._ranks.size)
        except (RuntimeError, OSError):
            return []


def report_to_launcher(cause: str) -> None:
    """Leave the cause where torch's elastic agent looks for it, if that started this process; the first one stays."""
    if path := os.environ.get(_ERROR_FILE):
        with suppress(OSError), Path(path).open("x", encoding="utf-8") as file:  # a full disk: the exit code must do
            json.dump({"message": cause, "timestamp": int(time.time())}, file)


def end_process(message: str | None, code: int) -> NoReturn:
    """End this process without waiting for collectives that the other ranks will never enter."""
    if message:
        print(f"bertbench: {message}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(code)
