"""Record why a run ends: a failing rank writes the cause to the store, and all ranks end with the first cause.

What a rank that fails does, in this order, each a function here:

    begin        only one of its threads ends the process: the failed one, or the watchdog
    claim        the first cause that any rank records is the run's; `reported` reads it
    account_for  rank 0 waits a few seconds, and names the ranks that no longer answer
    report       the first rank to do so prints the cause, so it is printed once, on one line
    leave        the others won't miss this rank; rank 0 lets them read the cause first
    end_process  with the exit code that launch/agent.py passes on

Who prints what (launch/rank.py and watchdog.py):

    when                                        who                                 what
    ranks haven't met yet                       every rank that fails               its error
    a rank fails by an error with a message     the first rank that reports         the run's cause
    a signal stops the ranks                    the first rank that reports         the signal
    the watchdog finds a rank that stalls       the first rank that reports         the run's cause
    the watchdog finds no store any more        the first rank of each node         that rank 0 gives no sign of life
    a rank loses contact with another           itself, unless a cause is recorded  that another rank is gone
    any other exception, which is a bug         the rank that raises it             its traceback
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from torch.distributed.distributed_c10d import Store

from bertbench.common.children import ERROR_FILE
from bertbench.common.errors import StoppedError
from bertbench.common.system_faults import uncaught
from bertbench.distributed.network_errors import lost_contact
from bertbench.distributed.ranks import Ranks
from bertbench.distributed.rendezvous import absent, ranks_text

Answer = TypeVar("Answer")
FAILURE_KEY = "bertbench/failure"
_LEFT_KEY = "bertbench/left"
_REPORTS_KEY = "bertbench/reports"
_LAST_WORD_S = 3.0
_LOOK_EVERY_S = 0.05
READ_EVERY_S = 2.0
"""Seconds, at most, after which a rank checks again whether a cause was recorded."""


class FailureReport:
    """The causes that ranks record as they end. If the process that holds the store is gone, no cause is found."""

    def __init__(self, store: Store, ranks: Ranks) -> None:
        self._store = store
        self._ranks = ranks
        self._ending = threading.RLock()
        if ranks.rank == 0:
            store.compare_set(FAILURE_KEY, "", "")  # so that reading it doesn't wait for a cause

    def begin(self, within_s: float = -1) -> bool:
        """Claim the right to end the process; return False if another thread has it and keeps it for `within_s`."""
        return self._ending.acquire(timeout=within_s)

    def claim(self, text: str) -> None:
        """Record why the run ends, unless a cause is already recorded."""
        self._ask(None, record_cause, self._store, text)

    def report(self, text: str) -> bool:
        """Record a cause as `claim` does; return whether this rank is the first to report and must print the cause."""
        self.claim(text)
        return self._ask(1, self._store.add, _REPORTS_KEY, 1) == 1

    def reported(self) -> str | None:
        """Return why the run ends; None if no rank could record it."""
        return self._ask(b"", self._store.get, FAILURE_KEY).decode() or None

    def only_stopped(self) -> bool:
        """Return whether no rank has failed, apart from being stopped by a signal; False if the store is gone."""
        reported = self._ask(b"the store is gone", self._store.get, FAILURE_KEY).decode()
        return not reported or StoppedError.SIGN in reported

    def account_for(self, error: BaseException) -> str:
        """Return why the run stops, as far as this rank knows; rank 0 names the ranks that don't `leave`.

        A killed rank can't report, and its peers may be stopped before they notice. So every living rank records that
        it leaves, and rank 0 waits a few seconds for all of them.
        """
        lost = lost_contact(error)
        cause = uncaught(error) or str(error) or type(error).__name__
        if lost:
            cause = "lost contact with another rank"
        cause = f"rank {self._ranks.rank}: {cause}"
        if not lost and not isinstance(error, StoppedError):
            self.claim(cause)
        elif self._ranks.rank == 0 and (silent := self._silent_ranks()):
            return f"{cause}; no report from {ranks_text(silent, self._ranks.size)}"
        return self.reported() or cause

    def leave(self) -> None:
        """Record that this rank ends and no longer needs the store, so that it isn't counted as lost."""
        self._ask(None, self._store.set, f"{_LEFT_KEY}/{self._ranks.rank}", "")

    def let_others_read(self, lost: int = 0) -> None:
        """Leave; on rank 0, which may hold the store, wait a few seconds until all but the lost ranks have left."""
        self.leave()
        end = time.monotonic() + READ_EVERY_S + _LAST_WORD_S
        while self._ranks.rank == 0 and len(self._staying()) > lost and time.monotonic() < end:
            time.sleep(_LOOK_EVERY_S)

    def _silent_ranks(self) -> list[int]:
        """Return the ranks that don't `leave` within a few seconds; none as soon as a rank has recorded its failure."""
        end = time.monotonic() + _LAST_WORD_S
        while silent := self._staying():
            if not self.only_stopped():
                return []
            if time.monotonic() > end:
                break
            time.sleep(_LOOK_EVERY_S)
        return silent

    def _staying(self) -> list[int]:
        """Return the other ranks that haven't left, as far as the store knows."""
        staying: list[int] = self._ask([], absent, self._store, _LEFT_KEY, self._ranks.size)
        return [rank for rank in staying if rank != self._ranks.rank]

    def _ask(self, gone: Answer, ask: Callable[..., Answer], *arguments: Any) -> Answer:
        """Return the store's answer, or `gone` if the process that held the store is gone."""
        try:
            return ask(*arguments)
        except (RuntimeError, OSError):
            return gone


def record_cause(store: Store, text: str) -> None:
    """Record in a run's store why the run ends, unless a cause is already recorded."""
    storable = text.encode("utf-8", "backslashreplace").decode()  # it may quote a path that isn't UTF-8
    store.compare_set(FAILURE_KEY, "", storable)


def recorded_cause(store: Store) -> str | None:
    """Return why the run ends, apart from a stop by a signal; None if no cause is recorded."""
    cause = store.get(FAILURE_KEY).decode() if store.check([FAILURE_KEY]) else ""
    return None if StoppedError.SIGN in cause else cause or None


def report_to_launcher(cause: str) -> None:
    """Write the cause for torch's elastic agent, if it started this process; only the first cause is kept."""
    if path := os.environ.get(ERROR_FILE):
        # on a full disk, the exit code must suffice
        with suppress(OSError), Path(path).open("x", encoding="utf-8") as file:
            json.dump({"message": cause, "timestamp": int(time.time())}, file)


def end_process(message: str | None, code: int) -> NoReturn:
    """End this process without waiting for collectives that the other ranks will never enter."""
    if message:
        print(f"bertbench: {message}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(code)
