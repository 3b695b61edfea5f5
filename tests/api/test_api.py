"""The functions of `import bertbench`: lazily imported, with one kind of error, and a process left as it was."""

import ast
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed

import bertbench
from bertbench.cli.main import main
from bertbench.loading.inputs import open_data
from bertbench.training.build import make_sampler
from tests.compliance.logs import closed, write
from tests.conftest import Captured, Tiny

ALONE = ("launch.ranks_per_node=1",)


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGDIR", str(tmp_path / "runs"))


def test_the_package_is_imported_without_torch_and_knows_its_names() -> None:
    program = (
        "import sys, bertbench\n"
        "assert {'load_system', 'run_training', 'BertbenchError', '__version__'} <= set(dir(bertbench))\n"
        "assert not {'torch', 'numpy', 'pydantic', 'compliance'} & set(sys.modules)\n"
        "bertbench.load_system('cpu_demo'), bertbench.judge_logs, bertbench.read_summary\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_type_checkers_see_every_public_name() -> None:
    tree = ast.parse(Path(bertbench.__file__).read_text())
    imported = {
        alias.name: f"{node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("bertbench.", "compliance"))
        for alias in node.names
    }
    imported.pop("user_errors")  # which every public function gets
    assert sorted(imported) == sorted(set(bertbench.__all__) - {"__version__"})
    assert all(getattr(bertbench, name).__module__.startswith(home) for name, home in imported.items())


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'bertbench' has no attribute 'load_sistem'"):
        bertbench.load_sistem  # noqa: B018


def test_overrides_are_texts_or_a_dictionary_of_json_values(tiny_file: str) -> None:
    by_text = bertbench.load_system(tiny_file, ["schedule.max_steps=7", "clip.mode=none"])
    by_name = bertbench.load_system(Path(tiny_file), {"schedule.max_steps": 7, "clip": {"mode": "none"}})
    assert by_text.model_dump() == by_name.model_dump()
    assert (by_name.max_steps, by_name.clip.mode) == (7, "none")


MISTAKES = {
    "config show cpu_demo --set schedule.max_steps=0": lambda: bertbench.load_system(
        "cpu_demo", {"schedule.max_steps": 0}
    ),
    "report no/such/log": lambda: bertbench.read_summary("no/such/log"),
    "train cpu_demo --set data.path=none": lambda: bertbench.run_training(
        bertbench.load_system("cpu_demo", {"data.path": "none", "launch.ranks_per_node": 1})
    ),
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_raises_what_the_command_prints(command: str, capsys: Captured) -> None:
    assert main(command.split()) == 2
    lines = capsys.readouterr().err.splitlines()
    printed = lines[next(number for number, line in enumerate(lines) if line.startswith("bertbench: ")) :]
    with pytest.raises(bertbench.BertbenchError) as raised:
        MISTAKES[command]()
    assert "\n".join(printed).startswith(f"bertbench: {raised.value}"), "a command may add what another one does"


REFUSED = {
    "expected a list of texts": lambda _: bertbench.load_system("cpu_demo", "schedule.max_steps=7"),
    "overrides: clip.mode is a set": lambda _: bertbench.load_system("cpu_demo", {"clip.mode": {"none"}}),
    "step=0: expected a whole number of at least 1": lambda system: bertbench.plan_step(system, 0),
    "seed=True: expected a whole number of at least 0": lambda system: bertbench.plan_step(system, 1, True),
    "found 10 logs": lambda _: bertbench.read_summary(bertbench_results()),
    "ruleset '5.1.0'": lambda _: bertbench.judge_logs(bertbench_results(), "5.1.0"),
    "no/such/log: no such file or folder": lambda _: bertbench.judge_logs("no/such/log"),
}


def bertbench_results() -> Path:
    return Path(__file__).parents[2] / "results" / "cpu_demo"


@pytest.mark.parametrize("message", REFUSED)
def test_an_argument_without_a_meaning_is_refused(message: str, tiny: Tiny) -> None:
    with pytest.raises(bertbench.BertbenchError) as raised:
        REFUSED[message](tiny(*ALONE))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((), "tiny has 2 ranks, but run_training trains one rank in this process; set launch.ranks_per_node to 1"),
        ((*ALONE, "launch.max_restarts=3"), "run_training doesn't read launch.max_restarts"),
        ((*ALONE, "squad.epochs=3"), "run_training doesn't read squad.epochs"),
    ],
)
def test_a_system_that_needs_several_processes_is_refused(tiny: Tiny, overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(bertbench.BertbenchError, match=message):
        bertbench.run_training(tiny(*overrides))


def test_a_process_of_a_launcher_or_a_thread_cannot_train(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    said = []

    def train() -> None:
        with pytest.raises(bertbench.BertbenchError) as raised:
            bertbench.run_training(tiny(*ALONE))
        said.append(str(raised.value))

    thread = threading.Thread(target=train, name="worker")
    thread.start()
    thread.join()
    for name, value in {"RANK": "1", "WORLD_SIZE": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    train()
    assert "run_training was called in thread 'worker'" in said[0]
    assert "this process is rank 1 of 3 according to its launcher's variables" in said[1]


def test_a_step_is_planned_as_a_run_with_that_seed_takes_it(tiny: Tiny) -> None:
    system = tiny()
    training, _ = open_data(system)
    sampler = make_sampler(system, training, seed=5)
    for step in (1, 4):
        planned = bertbench.plan_step(system, step, seed=5)
        expected = [sampler.step(step - 1, rank) for rank in range(2)]
        assert planned.lengths_from == str(training.folder)
        assert planned.load_efficiency == expected[0].load_efficiency
        for rank, of_rank in enumerate(expected):
            ids = np.concatenate([part.ids for part in of_rank.parts])
            assert planned.samples[rank] == tuple(ids.tolist())
            assert planned.tokens[rank] == training.lengths(ids).sum()
        assert sum(planned.loads) == pytest.approx(2)
        assert sorted(map(len, planned.samples)) != [0, 12]


def state() -> tuple[object, ...]:
    return (
        torch.get_num_threads(), torch.get_rng_state().tolist(), os.environ.get("GLOO_SOCKET_IFNAME"),
        signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1), distributed.is_initialized(),
    )  # fmt: skip


def test_training_restores_the_process_and_can_be_repeated(tiny: Tiny, tmp_path: Path) -> None:
    system = tiny(*ALONE)
    before = state()
    runs = [bertbench.run_training(system, seed=3, log=tmp_path / f"result_{number}.txt") for number in range(2)]
    assert state() == before
    assert runs[0].metrics["loss"] == runs[1].metrics["loss"]
    assert runs[0].metrics["step"] == (1, 2, 3, 4, 5, 6)
    assert [evaluation.samples for evaluation in runs[0].evaluations] == [36, 60, 72]  # every 25, in steps of 12
    assert (runs[0].status, runs[0].seed, runs[0].settings["schedule.max_steps"]) == ("aborted", 3, 6)
    assert bertbench.read_summary(tmp_path / "result_0") == runs[0]
    assert [judgement.verdict for judgement in bertbench.judge_logs(tmp_path)] == ["fail", "fail"]
    with pytest.raises(bertbench.BertbenchError, match="this log already exists; give another name"):
        bertbench.run_training(system, log=tmp_path / "result_0.txt")


def test_failed_training_closes_its_log_and_the_next_one_works(tiny: Tiny, tmp_path: Path) -> None:
    before = state()
    with pytest.raises(bertbench.BertbenchError, match="the loss of step 2 is nan"):
        bertbench.run_training(tiny(*ALONE, "optimizer.learning_rate=1e38"), seed=3, log=tmp_path / "bad.txt")
    assert state() == before
    assert bertbench.read_summary(tmp_path / "bad.txt").status == "interrupted"
    assert bertbench.run_training(tiny(*ALONE), seed=3).status == "aborted"


def test_an_interrupt_closes_the_log_and_is_raised_again(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bertbench.training.train.RunProgress.trained", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bertbench.run_training(tiny(*ALONE), seed=3, log=tmp_path / "result_0.txt")
    run = bertbench.read_summary(tmp_path / "result_0.txt")
    assert (run.status, distributed.is_initialized()) == ("interrupted", False)


def test_training_that_never_starts_its_clock_leaves_no_file(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(bertbench.BertbenchError):
        bertbench.run_training(tiny(*ALONE, "hardware.division=closed"), log=tmp_path / "result_0.txt")
    assert not list(tmp_path.glob("result_0*"))


def test_a_log_of_another_program_is_read_and_judged(tmp_path: Path) -> None:
    log = write(tmp_path / "result_0.txt", closed())
    run = bertbench.read_summary(log)
    assert run.evaluations[-1].accuracy == run.best_accuracy
    assert (dict(run.metrics), dict(run.settings)) == ({}, {})
    assert bertbench.judge_logs(log, division="closed")[0].verdict == "pass"
    assert bertbench.judge_logs(log, division="open")[0].verdict == "fail"
    (tmp_path / "other.txt").write_text("hello")
    assert bertbench.judge_logs(tmp_path / "other.txt")[0].verdict == "cannot-judge"
