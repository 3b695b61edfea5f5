"""Describe one node: the code, the data, the GPUs and the disk that a run on it would use."""

import hashlib
import shutil
import socket
from dataclasses import dataclass, field
from pathlib import Path

import compliance
from bertbench.common.errors import RunError
from bertbench.common.paths import PACKAGE, data_folder, runs_folder, weights_file
from bertbench.common.system_faults import unreadable, unwritable
from bertbench.config import System
from bertbench.data.store.manifest import MANIFEST_NAME
from bertbench.machine.describe import differences
from bertbench.machine.gpus import gpus_and_problems
from bertbench.machine.provenance import provenance

_CODE = (PACKAGE, Path(compliance.__file__).parent)
_GB = 1e9


@dataclass(frozen=True)
class Node:
    """A node's facts, those that must be equal on all nodes included, and its own problems."""

    host: str
    ranks: list[int]
    code: str
    """Commit, and the first digits of SHA-256 over the code and the resolved system."""
    data: str
    """First digits of SHA-256 over the manifests, and the bytes of the checkpoint."""
    gpus: list[str]
    disk_free_gb: float
    clock_offset_ms: float = 0.0
    all_reduce_gbit: float | None = None
    problems: list[str] = field(default_factory=list)


def this_node(system: System, ranks: list[int]) -> Node:
    """Describe the node of this process; `ranks` are those that run on it."""
    problems: list[str] = []
    try:
        differences(system.hardware)
    except RunError as error:
        problems.append(str(error))
    gpus, sick = gpus_and_problems()
    if system.launch.device == "cuda":
        problems += sick
    return Node(
        host=socket.gethostname(),
        ranks=ranks,
        code=_code(system),
        data=_data(system, problems),
        gpus=gpus,
        disk_free_gb=_disk(problems) / _GB,
        problems=problems,
    )


def _code(system: System) -> str:
    digest = hashlib.sha256(system.model_dump_json().encode())
    for folder in _CODE:
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(folder.parent)).encode() + b"\0" + path.read_bytes() + b"\0")
    commit = provenance()["commit"]
    return f"{str(commit)[:10] if commit else 'no commit'} {digest.hexdigest()[:10]}"


def _data(system: System, problems: list[str]) -> str:
    folders = dict.fromkeys((system.data.path, system.data.eval_path or system.data.path))
    manifests = [data_folder(folder) / MANIFEST_NAME for folder in folders]
    weights = [] if system.model.checkpoint is None else [weights_file(system.model.checkpoint)]
    facts = []
    for path in (*manifests, *weights):
        try:
            digest = path in manifests and hashlib.sha256(path.read_bytes()).hexdigest()[:10]
            facts.append(digest or f"{path.stat().st_size} bytes")
        except OSError as error:
            facts.append("none")
            problems.append(unreadable(path, error, "prepare the data and import the checkpoint, or set DATADIR"))
    return " ".join(facts)


def _disk(problems: list[str]) -> int:
    """Return the free bytes where the run would write."""
    folder = runs_folder()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    try:
        probe = there / f".bertbench_preflight_{socket.gethostname()}"
        probe.write_text("")
        probe.unlink(missing_ok=True)
    except OSError as error:
        problems.append(unwritable(there, error, "set LOGDIR to a writable folder"))
    return free
