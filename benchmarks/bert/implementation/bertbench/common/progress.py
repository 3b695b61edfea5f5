"""Show progress on standard error: as a bar on a terminal, as plain lines elsewhere. It is never in an MLPerf log."""

import shutil
import sys
import time
from typing import Self

from tqdm import tqdm

_LINE_EVERY_S = 10.0
_COLUMNS = 80  # at the largest batches, the text leaves only a few columns for the bar


class Progress:
    """The progress of a long command; ranks other than 0 print nothing."""

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled
        self._bar: tqdm | None = None
        self._terminal = sys.stderr.isatty()
        self._last_line = 0.0

    def message(self, text: str) -> None:
        """Print one line, above the bar if there is one."""
        if not self._enabled:
            return
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)

    def update(self, done: int, total: int, text: str) -> None:
        """Show `done` of `total` units and a text; without a terminal, print a line at most every 10 seconds."""
        if not self._enabled:
            return
        if self._terminal:
            if self._bar is None:
                columns = min(_COLUMNS, shutil.get_terminal_size().columns)
                self._bar = tqdm(
                    total=total, file=sys.stderr, leave=False, bar_format="{bar}| {desc}",
                    ncols=columns,
                )  # fmt: skip
            self._bar.total = total
            self._bar.n = min(done, total)
            self._bar.set_description_str(text)
        elif time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._last_line = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
