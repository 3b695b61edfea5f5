"""Files that are read can't run code, ports are out of others' reach, and files that are written contain no secrets."""

import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path, PosixPath
from types import SimpleNamespace

import pytest
import torch
from torch.distributed import checkpoint
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, StorageMeta

import bertbench
import compliance
from bertbench.checkpoint.state_files import SnapshotReader
from bertbench.common.errors import CheckpointError
from tests.ranks import LIMIT_S
from tests.whole_runs import BERTBENCH, children, metrics, wait_for, words


def test_our_code_never_reads_tensors_with_an_unrestricted_pickle() -> None:
    """Ruff's rules (pyproject.toml) find the other ways in which a file could run code."""
    folders = [Path(package.__file__ or "").parent for package in (bertbench, compliance)]
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    assert len(sources) > 200
    assert not [path for path in sources if re.search("weights_only=False|allow_pickle=True", path.read_text())]


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    checkpoint.save({"weight": torch.arange(7.0)}, checkpoint_id=tmp_path / "step_1", no_dist=True)
    return tmp_path / "step_1"


class RunsCode:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def assert_refused(snapshot: Path, metadata: object, found: str) -> None:
    (snapshot / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointError, match=found):
        SnapshotReader(snapshot).read_metadata()


def test_a_snapshot_that_would_run_code_is_refused_before_it_does(snapshot: Path, tmp_path: Path) -> None:
    mark = tmp_path / "it ran"
    assert_refused(snapshot, RunsCode(mark), r"posix\.mkdir")
    assert not mark.exists()
    pickle.loads((snapshot / ".metadata").read_bytes())  # as torch's own reader would
    assert mark.exists()


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        (Metadata({"weight": BytesStorageMetadata()}, storage_data={}), "BytesStorageMetadata"),
        (Metadata({}, storage_data=None), "metadata"),
        (SimpleNamespace(), "SimpleNamespace"),
    ],
)  # torch unpickles bytes without limits
def test_a_snapshot_of_anything_but_tensors_is_refused(snapshot: Path, metadata: object, found: str) -> None:
    assert_refused(snapshot, metadata, found)


def test_a_snapshot_that_names_a_file_elsewhere_is_refused(snapshot: Path) -> None:
    metadata = SnapshotReader(snapshot).read_metadata()
    for info in metadata.storage_data.values():
        info.relative_path = "../elsewhere"
    assert_refused(snapshot, metadata, "elsewhere|outside")


def test_a_snapshot_that_python_313_wrote_is_read_by_every_version(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = SnapshotReader(snapshot).read_metadata()
    metadata.storage_meta = StorageMeta(checkpoint_id=snapshot)
    with monkeypatch.context() as as_313:
        as_313.setattr(PosixPath, "__module__", "pathlib._local")
        as_313.setitem(sys.modules, "pathlib._local", pathlib)
        written = pickle.dumps(metadata)
    assert b"pathlib._local" in written
    (snapshot / ".metadata").write_bytes(written)
    found = SnapshotReader(snapshot).read_metadata().storage_meta
    assert found
    assert found.checkpoint_id == snapshot


def listening(pid: int) -> set[str]:
    """Addresses, in hexadecimal, that a process listens on."""
    owned = {str(handle.readlink()) for handle in Path(f"/proc/{pid}/fd").iterdir() if handle.is_symlink()}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in owned}


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_run_on_one_machine_listens_on_loopback_only_and_writes_no_secret(tiny_file: str, tmp_path: Path) -> None:
    secret = "hunter2-hunter2"
    endless = words(["schedule.max_steps=100000", "evaluation.interval_samples=36", "checkpoint.every_steps=5"])
    env = {**os.environ, "LOGDIR": str(tmp_path / "runs"), "SECRET_TOKEN": secret, "WANDB_API_KEY": secret}
    with (tmp_path / "said").open("w") as said:
        launcher = subprocess.Popen([*BERTBENCH, "train", tiny_file, *endless], env=env, stderr=said, stdout=said)
    log = tmp_path / "runs" / "tiny" / "bert" / "result_0.txt"
    try:
        wait_for((log.with_suffix("") / "snapshots" / "step_10").exists)
        ranks = children(launcher.pid)
        found = [listening(pid) for pid in (launcher.pid, *ranks.values())]
        os.kill(ranks[1], signal.SIGKILL)
        launcher.wait(LIMIT_S)
    finally:
        launcher.kill()
    assert len(found) == 3
    assert set.union(*found) == {"0100007F"}, "127.0.0.1"
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {log, log.with_suffix("") / "config.json", tmp_path / "said"} <= set(written)
    assert not [path for path in written if secret.encode() in path.read_bytes()]
    assert metrics(log)
