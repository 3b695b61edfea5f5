"""Name and write the files of a run: result_<n>.txt, and a folder of the same name with files that explain it."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from bertbench.common.errors import BertbenchError, ConfigError, RunError
from bertbench.common.json_object import JsonObject
from bertbench.common.paths import METRICS, data_path, folder_of
from bertbench.common.system_faults import exists, unwritable
from bertbench.config import System
from bertbench.config.load import RUN_CONFIG
from bertbench.data.store.manifest import VOCAB_NAME
from bertbench.machine.provenance import provenance, with_software
from bertbench.runs.trace import Trace
from bertbench.runs.trace_format import TRACE_FILE


class ResultFiles:
    """The log of one run, and the folder of its other files: result_<n>/ for result_<n>.txt."""

    SNAPSHOTS = "snapshots"

    def __init__(self, log: Path) -> None:
        self.log = log
        self.folder = folder = folder_of(log)
        self.metrics = folder / METRICS  # one line for each step
        self.arithmetic = folder / "arithmetic.json"  # number format and library of the matrix products
        self.trace = folder / TRACE_FILE  # where the time went, over all attempts of the run
        self.snapshots = folder / self.SNAPSHOTS  # one folder for each snapshot
        self.weights = folder / "weights.safetensors"  # the trained model, written when the run ends
        self.vocabulary = folder / VOCAB_NAME  # the vocabulary that the model was trained with
        self.lost = folder / "lost.txt"  # lines that were cut from the log because the run resumed before them

    def describe(
        self,
        system: System,
        seed: int,
        variables: Mapping[str, str] | None = None,
        vocabulary: Path | None = None,
        configuration: JsonObject | None = None,
    ) -> None:
        """Write the resolved configuration, MLPerf's system description, run.json, and the vocabulary.

        `variables` are the environment variables that the run applied; `vocabulary` defaults to the dataset's, and
        `configuration` to the system's settings.

        Raises RunError if the folder can't be written.
        """
        with _writing(self.folder):
            self.folder.mkdir(exist_ok=True)
            if vocabulary is None:
                vocabulary = data_path(system.data.path) / VOCAB_NAME
            if vocabulary.is_file():
                shutil.copyfile(vocabulary, self.vocabulary)
        self.write(RUN_CONFIG, configuration or system.model_dump(mode="json", by_alias=True))
        self.write("system.json", with_software(system.hardware.description()))
        origin = {"seed": seed, "world_size": system.world_size, "variables": dict(variables or {})}
        self.write("run.json", {**origin, **provenance()})

    def write(self, name: str, content: object) -> None:
        """Write a JSON file into the folder. Raises RunError if it can't be written."""
        path = self.folder / name
        with _writing(path):
            path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    def open_trace(self) -> Trace:
        """Open the trace, which may be before rank 0 has made the folder. Raises RunError as `describe` does."""
        with _writing(self.folder):
            self.folder.mkdir(exist_ok=True)
        return Trace(self.trace)

    def reserve(self) -> None:
        """Make the log, empty, so that no other run writes it.

        Raises ConfigError if it exists, its folder doesn't, or it can't be written.
        """
        if not exists(self.log.parent, ConfigError):
            raise ConfigError(f"--result {self.log}: found no folder {self.log.parent}; make it, or name another file")
        with _writing(self.log, ConfigError):
            try:
                self.log.open("x").close()
            except FileExistsError as error:
                raise ConfigError(
                    f"--result {self.log}: this log exists already, from another run; give another name, or resume "
                    "that run by --resume auto"
                ) from error

    def discard(self, again: bool = False) -> None:
        """Remove the log and the folder of a run that never started.

        If `again`, the run restarts under the same number, with an empty log and the trace of its attempts so far.
        """
        trace = self.trace.read_bytes() if again and self.trace.exists() else b""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        if again:
            self.log.touch()
            self.folder.mkdir()
            self.trace.write_bytes(trace)


def reserve_number(runs: Path, system: str, short: str | None = None) -> ResultFiles:
    """Reserve the next free number in runs/<system>/bert, of result_<n>.txt or of a short run, by an empty log.

    Raises ConfigError if the folder can't be written.
    """
    folder = runs / system / (short or "bert")
    number = 0
    with _writing(folder, ConfigError):
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            log = folder / f"{short or 'result'}_{number}.txt"
            with suppress(FileExistsError):
                log.open("x").close()
                return ResultFiles(log)
            number += 1


@contextmanager
def _writing(path: Path, kind: type[BertbenchError] = RunError) -> Iterator[None]:
    """Raise `kind` if the code in the context can't write `path`: before a run, its place is a user's choice."""
    try:
        yield
    except OSError as error:
        raise kind(unwritable(path, error, "set LOGDIR to a folder that can")) from error
