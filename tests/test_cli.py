"""The command line itself: help, seeds, pipes, completion, and mistakes that are reported at once."""

import io
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import compliance.__main__ as judge
from bertbench.cli.main import main
from bertbench.common.errors import refused_variable
from bertbench.common.paths import REPOSITORY
from bertbench.runs.run_progress import RunProgress
from tests.compliance.logs import closed, write
from tests.conftest import Captured, Program, Tiny


@pytest.mark.parametrize("words", [[], ["data"], ["finetune", "squad"]])
def test_a_command_without_words_shows_its_help(words: list[str], capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    shown = capsys.readouterr()
    assert ended.value.code == 2
    assert shown.err.startswith(f"{' '.join(['bertbench', *words])}: the following arguments are required: ")
    assert shown.out.startswith(" ".join(["usage: bertbench", *words, "[-h]"]))
    assert "show this help message" in shown.out


def test_no_help_waits_for_torch() -> None:
    program = (
        "import contextlib, io, sys\nfrom bertbench.cli.commands import COMMANDS\nfrom bertbench.cli.main import main\n"
        "for words in [[], *(command.words for command in COMMANDS)]:\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):\n"
        "        main([*words, '--help'])\n"
        "    assert shown.getvalue().startswith('usage: '), words\n"
        "    assert 'torch' not in sys.modules, words\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [["config", "show"], []])
def test_help_of_a_command_is_its_help(words: list[str], capsys: Captured) -> None:
    shown = []
    for line in (["help", *words], [*words, "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(line)
        assert ended.value.code == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert shown[0].startswith(" ".join(["usage: bertbench", *words, "[-h]"]))


REFUSED = {
    "data verfy DIR": "invalid choice: 'verfy'; did you mean verify?",
    "train cpu_demo --sede 3": "unrecognized arguments: --sede 3; did you mean --seed?",
    "train cpu_demo --lr 1e-3": "unrecognized arguments: --lr 1e-3\n",
    "train cpu_demo --max_step 3": "did you mean --set schedule.max_steps=VALUE?",
    "train cpu_demo --dropout 0": "--set model.hidden_dropout=VALUE or --set model.attention_dropout=VALUE?",
    "plan cpu_demo optimizer.learning_rate=1e-3": "did you mean --set optimizer.learning_rate=VALUE?",
    "train cpu_demo --epochs 3": "unrecognized arguments: --epochs 3\n",
    "finetune squad --system x --train a --dev b --vocab c --out d --epochs 3": "--set squad.epochs=VALUE?",
    "train cpu_demo --seed=-1": "argument --seed: '-1'",
    "balance --seed=1.5": "argument --seed: '1.5'",
    "lab step --seed=": "argument --seed: ''",
}


@pytest.mark.parametrize(("words", "expected"), REFUSED.items())
def test_a_close_misspelling_gets_a_suggestion_and_a_seed_is_a_whole_number(
    words: str, expected: str, capsys: Captured
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


def test_an_option_without_its_value_gets_no_suggestion_of_itself(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["evaluate", "cpu_demo", "--weights"])
    assert capsys.readouterr().err.endswith("argument --weights: expected one argument\n")


@pytest.mark.parametrize(
    ("given", "expected"),
    [([], "cpu_demo"), (["--runs", "2"], "cpu_demo --runs 2"), (["dgxa100_n1", "--seed", "3"], "dgxa100_n1 --seed 3")],
)
def test_run_and_time_runs_the_demo_unless_a_system_is_named(
    tmp_path: Path, program: Program, given: list[str], expected: str
) -> None:
    program("python3", 'echo "$@"')
    script = tmp_path / "run_and_time.sh"  # away from the repository's .venv
    script.write_text((REPOSITORY / "run_and_time.sh").read_text())
    done = subprocess.run(["bash", script, *given], capture_output=True, text=True, check=True)
    assert done.stdout == f"-P -m bertbench launch {expected}\n"


@pytest.mark.parametrize("name", ["DGXSYSTEM", "CONFIG_NAME"])
def test_run_and_time_leaves_the_system_to_a_variable(tmp_path: Path, program: Program, name: str) -> None:
    program("python3", 'echo "$@"')
    script = tmp_path / "run_and_time.sh"
    script.write_text((REPOSITORY / "run_and_time.sh").read_text())
    for value, expected in (("DGXA100_8x8x48x1", "--runs 2"), ("", "cpu_demo --runs 2")):
        environment = {**os.environ, name: value}
        command = ["bash", script, "--runs", "2"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == f"-P -m bertbench launch {expected}\n"


def test_an_unknown_system_is_a_line_before_torch_is_imported_and_leaves_no_file(tmp_path: Path) -> None:
    commands = [
        *([name, "nosuch"] for name in ("train", "launch", "evaluate", "plan", "preflight")),
        ["train", "cpu_demo", "--set", "nosuch=1"],
        ["finetune", "squad", "--system", "nosuch", *(f"--{name}=x" for name in ("train", "dev", "vocab", "out"))],
    ]
    program = (
        "import json, sys\nfrom bertbench.cli.main import main\n"
        f"print(json.dumps([[main(words), 'torch' in sys.modules] for words in {commands!r}]))"
    )
    environment = {**os.environ, "LOGDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[2, False]] * len(commands)
    assert len(done.stderr.splitlines()) == len(commands)
    assert not list(tmp_path.iterdir())
    assert done.stderr.count("found no system 'nosuch'") == len(commands) - 1
    assert "nosuch: unknown key" in done.stderr


@pytest.mark.parametrize("words", [["config", "list"], ["judge", "LOG"]])
def test_a_reader_that_has_seen_enough_is_no_error(words: list[str], tmp_path: Path) -> None:
    log = str(write(tmp_path / "result_0.txt", closed()))
    command = [sys.executable, "-m", "bertbench", *(log if word == "LOG" else word for word in words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, "")


def in_a_shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line whose $python is this one, with LOG and other names from the environment."""
    given = {**os.environ, "python": sys.executable, **environment}
    return subprocess.run(["bash", "-c", line], env=given, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("judging", "streams", "prints"),
    [
        ("bertbench judge", "2>&-", True),
        ("bertbench judge --json", "<&- >&- 2>&-", False),
        ("compliance", "<&- >&- 2>&-", False),
    ],
)
def test_a_verdict_does_not_depend_on_streams_that_nobody_reads(
    judging: str, streams: str, prints: bool, tmp_path: Path
) -> None:
    log = str(write(tmp_path / "result_0.txt", closed()))
    done = in_a_shell(f'"$python" -m {judging} "$LOG" {streams}', LOG=log)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("PASS" in done.stdout) == prints


@pytest.mark.parametrize("words", ["bertbench judge LOG", "compliance LOG", "bertbench --help"])
def test_an_answer_that_a_full_disk_can_t_take_is_one_line_and_no_verdict(words: str, tmp_path: Path) -> None:
    log = str(write(tmp_path / "result_0.txt", closed()))
    done = in_a_shell(f'"$python" -m {words.replace("LOG", log)} >/dev/full')
    assert done.returncode == 74
    reason = "can't write to standard output (No space left on device); free space there"
    assert done.stderr == f"{words.split(maxsplit=1)[0]}: {reason}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "locale", [{"LC_ALL": "C.UTF-8"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_a_run_writes_below_any_path_and_prints_it_as_a_shell_reads_it(
    locale: dict[str, str], tmp_path: Path, tiny_file: str
) -> None:
    folder = os.fsencode(tmp_path) + b"/l\xff\xe9g"
    os.mkdir(folder)  # noqa: PTH102 - pathlib takes no bytes
    given = {**os.environ, **locale, "LOGDIR": os.fsdecode(folder), "TMPDIR": os.fsdecode(folder)}
    words = [sys.executable, "-m", "bertbench", "train", tiny_file, "--set", "checkpoint.every_steps=2"]
    done = subprocess.run(words, env=given, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("judge "))
    judged = in_a_shell(line.replace("judge   bertbench", '"$python" -m bertbench'))
    assert judged.returncode == 1, judged.stderr
    assert judged.stdout.startswith("FAIL")
    assert not any(name.startswith(b"bertbench-") for name in os.listdir(folder))  # noqa: PTH208


@pytest.mark.slow
def test_ranks_start_in_a_folder_that_holds_one_of_this_name(tmp_path: Path, tiny_file: str) -> None:
    (tmp_path / "bertbench").mkdir()
    done = in_a_shell(
        'cd "$LOGDIR" && "$python" -P -m bertbench train "$FILE" --smoke', FILE=tiny_file, LOGDIR=str(tmp_path)
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("streams", ["<&- >&- 2>&-", ">/dev/null 2>/dev/full"])
def test_a_run_trains_without_the_streams_that_a_shell_closed(streams: str, tmp_path: Path, tiny_file: str) -> None:
    done = in_a_shell(f'"$python" -m bertbench train "$FILE" --smoke {streams}', FILE=tiny_file, LOGDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    log = tmp_path / "tiny" / "smoke" / "smoke_0.txt"
    assert "run_stop" in log.read_text()


def test_a_variable_that_torch_refuses_as_it_loads_is_one_line_with_its_name() -> None:
    done = in_a_shell('"$python" -m bertbench plan cpu_demo', TORCH_DISTRIBUTED_DEBUG="sometimes")
    said = "bertbench: TORCH_DISTRIBUTED_DEBUG is 'sometimes', which is refused"
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (2, True, False)


@pytest.mark.parametrize(
    ("error", "blamed"),
    [
        (ValueError("Unknown level: 'LOUD'"), "LOGLEVEL is 'loud'"),
        (ValueError("invalid literal for int() with base 10: 'many'"), "TORCHINDUCTOR_COMPILE_THREADS is 'many'"),
        (KeyError("few"), None),
        (ValueError("rank 1 of 7"), None),
    ],
)
def test_only_an_error_that_quotes_a_library_s_variable_is_put_down_to_it(
    error: Exception, blamed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "LOGLEVEL": "loud", "TORCHINDUCTOR_COMPILE_THREADS": "many", "HOME_OF": "few", "OMP_NUM_THREADS": "7",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    line = refused_variable(error)
    assert (line and line.partition(",")[0]) == blamed


def test_a_folder_of_this_name_in_the_working_directory_hides_nothing(tmp_path: Path) -> None:
    """Run as in the folder into which the repository was cloned."""
    (tmp_path / "bertbench").mkdir()
    script = REPOSITORY / "run_and_time.sh"
    done = subprocess.run(["bash", script, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: bertbench launch" in done.stdout


@pytest.mark.parametrize("more", [[], ["--json"], ["--ruleset", "2.0.0"]])
def test_judge_is_the_judge_by_another_door(tmp_path: Path, more: list[str], capsys: Captured) -> None:
    log = str(write(tmp_path / "result_0.txt", closed()))
    words = [*more, log]
    assert main(["judge", *words]) == judge.main(words)
    shown = capsys.readouterr().out
    assert shown[: len(shown) // 2] == shown[len(shown) // 2 :] != ""


COMPLETED = {
    "bertbench fin": ["finetune"],
    "bertbench plan --str": ["--strict"],
    "bertbench train dgxh": ["dgxh200_n1"],
    "bertbench data prepare --recipe ": ["system", "mlperf"],
}


@pytest.mark.parametrize(("line", "expected"), COMPLETED.items())
def test_a_shell_completes_commands_systems_options_and_values(line: str, expected: list[str], tmp_path: Path) -> None:
    asked = {
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "answer"),
        "COMP_LINE": line, "COMP_POINT": str(len(line)),
    }  # fmt: skip
    subprocess.run([sys.executable, "-m", "bertbench"], env={**os.environ, **asked}, check=False, capture_output=True)
    assert [word.strip() for word in (tmp_path / "answer").read_text().split("\n")] == expected


class Terminal(io.StringIO):
    """Return the text that a terminal would receive."""

    def isatty(self) -> bool:
        return True


def test_progress_fits_80_columns(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    clock = itertools.count(0.0, 0.05)  # a step each time that somebody asks: 1.3 million samples/s
    monkeypatch.setattr("bertbench.runs.run_progress.time.monotonic", lambda: next(clock))
    system = tiny("schedule.max_steps=14063", "data.global_batch_size=65536")
    with RunProgress(system, enabled=True) as progress:
        for step in (14060, 14061, 14062):
            progress.trained(step, 14063, 11.123, {"mfu": 0.52})
        progress.evaluated(10**9, 0.72)
        progress.trained(14062, 14063, 11.123, {"mfu": 0.52})
        progress.trained(14063, 14063, 11.123, {"mfu": 0.52})
    drawn = [line for line in terminal.getvalue().replace("\n", "\r").split("\r") if "step" in line]
    assert any("14063/14063" in line and "MFU 52%" in line and "eval in 0 s" in line for line in drawn)
    assert max(map(len, drawn)) <= 80
