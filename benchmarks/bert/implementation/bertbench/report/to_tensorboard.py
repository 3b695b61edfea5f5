"""TensorBoard's event files: a folder a run, written by TensorBoard's own writer."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from bertbench.report.feed import Point
from bertbench.report.run_reading import FollowedRun


class Recorder:
    """One run under `out`, in a folder of its name; event files of an earlier record there are removed."""

    def __init__(self, run: FollowedRun, out: Path) -> None:
        folder = out / run.name
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = EventFileWriter(str(folder))
        rows = (f"| {name} | {json.dumps(value)} |" for name, value in run.parameters().items())
        self._text("parameters", "\n".join(["| parameter | value |", "| --- | --- |", *rows]))

    def record(self, points: Sequence[Point]) -> None:
        """Add an event a point."""
        for step, time_s, values in points:
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
            self._writer.add_event(Event(wall_time=time_s, step=step, summary=summary))
        self._writer.flush()

    def close(self, status: str, summary: Mapping[str, float]) -> None:
        """Add status and final numbers as a text, and close the file."""
        self._text("ended", json.dumps({"status": status, **summary}))
        self._writer.close()

    def _text(self, tag: str, text: str) -> None:
        self._writer.add_event(Event(step=0, summary=text_pb(tag, text)))
