"""A command that is stopped by any signal leaves no process behind, nor, unless it is SIGKILL, a temporary file."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.data.datasets import vocabulary_of_words
from tests.faults import failing_rank
from tests.faults.test_restarts import assert_as_if_undisturbed, lasting, resumptions
from tests.finetune.conftest import QUESTIONS
from tests.ranks import LIMIT_S
from tests.tiny import tiny_text
from tests.whole_runs import BERTBENCH, children, finished, launched, wait_for, wait_for_steps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
MARK = "BERTBENCH_TEST_ROW"
COMMANDS = {
    "train": "train {tiny} --set schedule.max_steps=99999 --set evaluation.interval_samples=9999999",
    "launch": "launch {tiny} --runs 99",
    "preflight": "preflight {tiny}",
    "finetune": "finetune squad --system {tiny} --train {questions} --dev {questions} --vocab {vocab} "
    "--out {out}/tuned --set task=squad --set model.max_positions=101 --set squad.epochs=999",
    "data prepare": "data prepare --recipe mlperf --workers 2 --vocab {vocab} --out {out}/data "
    "--text {text} {text}.more",
    "lab step": "lab step --rounds 99",
    "lab time-to-target": "lab time-to-target cpu_demo --steps 999",
    "lab assignment": "lab assignment --steps 999",
    "lab kernels": "lab kernels",
    "lab overlap": "lab overlap --rounds 99",
    "lab links": "lab links --system {tiny}",
    "lab links, far": "lab links --system {tiny} --latency-ms 3",
    "lab study": "lab study compression --out {out}/compression",
    "lab paper": "lab paper --out {out}/paper",
    "gpu_check": "--only trainer --out {out}/gpu",
}
"""Every command that starts processes, at work for longer than the test looks at it."""
SOON_S, AT_WORK_S = 0.5, 8
QUICK = ("data prepare", signal.SIGKILL, SOON_S)
ALL = [
    *((name, signal.SIGKILL, SOON_S) for name in COMMANDS),
    *((name, signal.SIGTERM, AT_WORK_S) for name in COMMANDS),
    ("preflight", signal.SIGTERM, 0.0),  # it lasts but seconds
    ("launch", signal.SIGHUP, AT_WORK_S),
    ("data prepare", signal.SIGHUP, AT_WORK_S),
]


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    for system in ("cpu_demo", "cpu_study"):
        command = [*BERTBENCH, "data", "prepare", "--system", system]
        subprocess.run(command, env={**os.environ, "DATADIR": str(folder)}, check=True)
    return folder


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A short path, because sockets are created in TMPDIR."""
    folder = tempfile.mkdtemp(dir="/tmp")
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # its process has ended
        return b""


def marked(mark: str) -> list[int]:
    """Processes that inherited the mark or name it."""
    return [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if mark.encode() in read(process / "environ") + read(process / "cmdline")
    ]


def has_started_one(parent: int) -> bool:
    """Return whether a child has started its own program; until then it has its parent's memory and words."""
    threads = Path(f"/proc/{parent}/task").glob("*/children")
    return any(
        read(Path(f"/proc/{child}/cmdline")) not in (read(Path(f"/proc/{parent}/cmdline")), b"")
        for child in b" ".join(map(read, threads)).decode().split()
    )


def stopped(
    words: list[str], folder: Path, temporary: Path, number: int, after_s: float, **env: str
) -> tuple[int, str]:
    """Stop a command some time after its first child started, and wait for its processes; return code and output."""
    environment = {**os.environ, "TMPDIR": str(temporary), MARK: str(temporary), **env,
                   "LOGDIR": str(folder / "runs"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}  # fmt: skip
    said = folder / "said"
    with said.open("w") as stream:
        command = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=stream)
    try:
        wait_for(lambda: command.poll() is not None or has_started_one(command.pid))
        assert command.poll() is None, said.read_text()
        time.sleep(after_s)
        command.send_signal(number)
        command.wait(LIMIT_S)
        end = time.monotonic() + LIMIT_S
        wait_for(lambda: not marked(str(temporary)) or time.monotonic() > end, 2 * LIMIT_S)
        names = [read(Path(f"/proc/{one}/cmdline")).replace(b"\0", b" ") for one in marked(str(temporary))]
        assert names == []
    finally:
        for process in marked(str(temporary)):
            os.kill(process, signal.SIGKILL)
    if number != signal.SIGKILL:
        assert list(temporary.iterdir()) == []
        hidden = [path for path in folder.rglob(".*") if path.name != ".metadata"]  # a finished snapshot has one
        assert [*hidden, *folder.rglob("*partial*")] == []
    return command.returncode, said.read_text()


@pytest.mark.parametrize(
    ("name", "number", "after_s"),
    [QUICK, *(pytest.param(*row, marks=pytest.mark.faults) for row in ALL if row != QUICK)],
)
def test_a_command_that_is_stopped_leaves_nothing_behind(
    name: str, number: signal.Signals, after_s: float, tiny_file: str, tmp_path: Path, temporary: Path,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    folder, text, vocab = tmp_path / "folder", tmp_path / "text", vocabulary_of_words(tmp_path / "vocab.txt")
    folder.mkdir()
    text.write_text(tiny_text(Random(9), articles=1000) * (400 if name == "data prepare" else 0))
    shutil.copy(text, f"{text}.more")
    with Path(f"{text}.more").open("a") as more:
        more.write("\nAnother end, because equal texts are refused.\n")
    needs_data = name in ("lab time-to-target", "lab study", "lab paper")
    data = {"DATADIR": str(request.getfixturevalue("datasets"))} if needs_data else {}
    program = [sys.executable, "-m", "lab.bench.gpu_check"] if name == "gpu_check" else BERTBENCH
    words = COMMANDS[name].format(tiny=tiny_file, text=text, vocab=vocab, out=folder, questions=QUESTIONS).split()
    code, said = stopped([*program, *words], folder, temporary, number, after_s, **data)
    if code == 0:
        assert after_s > 1, said
        return  # it was over before
    assert code in ((-9,) if number == signal.SIGKILL else (128 + number, 75)), said
    assert "Traceback" not in said, said


@pytest.mark.faults
def test_a_launcher_killed_during_training_leaves_no_rank_and_a_run_that_resumes(
    tiny_file: str, tmp_path: Path, temporary: Path
) -> None:
    run = [tiny_file, *lasting(600)]
    log = tmp_path / "run" / "result_0.txt"
    log.parent.mkdir()
    with launched("train", *run, "--result", log, **{"TMPDIR": str(temporary), MARK: str(temporary)}) as launcher:
        wait_for_steps(log, 100)
        os.kill(children(launcher.pid)[1], signal.SIGSTOP)  # could not end by itself
    wait_for(lambda: not marked(str(temporary)))
    assert finished("train", *run, "--result", log, "--resume", "auto").returncode == 0
    assert resumptions(log) == [(1, "no cause was recorded")]
    assert_as_if_undisturbed(log, *run)


@pytest.mark.faults
@pytest.mark.parametrize("moment", failing_rank.MESSAGES)
def test_a_rank_that_fails_before_in_or_after_meeting_ends_all_with_its_message(
    moment: str, tiny_file: str, temporary: Path
) -> None:
    run = [sys.executable, "-m", "tests.faults.failing_rank", moment, tiny_file]
    environment = {**os.environ, "TMPDIR": str(temporary), MARK: str(temporary)}
    limit_s = failing_rank.MEETING_S / 3  # all end within 10 s, but on a machine that others use
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False, timeout=limit_s)
    assert done.returncode == 1, done.stderr
    assert failing_rank.MESSAGES[moment] in done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert marked(str(temporary)) == []
