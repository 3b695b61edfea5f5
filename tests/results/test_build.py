import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bertbench.cli import main
from bertbench.common.paths import REPOSITORY
from compliance.package import judge_package

RESULTS = REPOSITORY / "results"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("package") / "org"
    out.mkdir()
    assert main(["package", "--out", str(out), "--submitter", "bertbench", "cpu_demo"]) == 0
    return out


def test_the_package_has_mlperfs_layout_and_the_logs_unchanged(package: Path) -> None:
    assert sorted(path.name for path in package.iterdir()) == ["benchmarks", "results", "systems"]
    logs = sorted((package / "results" / "cpu_demo" / "bert").iterdir())
    assert [log.name for log in logs] == [f"result_{run}.txt" for run in range(10)]
    for log in logs:
        assert log.read_bytes() == (RESULTS / "cpu_demo" / "bert" / log.name).read_bytes()
    sources = package / "benchmarks" / "bert" / "implementations" / "bertbench"
    for name in ("run_and_time.sh", "README.md", "benchmarks/bert/implementation/bertbench/training/train.py"):
        assert (sources / name).read_bytes() == (REPOSITORY / name).read_bytes()
    assert json.loads((sources / "measured/cpu_demo/result_3/run.json").read_text())["commit"].startswith("85804e9")
    assert not list(package.rglob("__pycache__"))


def test_the_official_package_and_repository_checkers_pass_on_it(package: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(package, tmp_path / "bertbench")  # the tools write into what they judge
    for tool, success in (("package_checker", "FOUND NO ERRORS, SUCCESS"), ("repo_checker", "ALL CHECKS PASSED")):
        command = [sys.executable, "-m", f"mlperf_logging.{tool}", str(copy), "training", "5.0.0"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert success in done.stderr
        assert "ERROR - " not in done.stderr
        assert "WARNING - " not in done.stderr


def test_the_judge_passes_it_without_a_word(package: Path) -> None:
    judgement = judge_package(package, "5.0.0")
    assert (judgement.verdict, judgement.all_findings()) == ("pass", [])


def test_the_submitter_is_who_was_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["package", "--out", str(tmp_path / "org"), "--submitter", "Some Org", "--json", "cpu_demo"]) == 0
    assert json.loads((tmp_path / "org/systems/cpu_demo.json").read_text())["submitter"] == "Some Org"
    printed = capsys.readouterr()
    judgement = json.loads(printed.out)
    assert [finding["rule"] for finding in judgement["findings"]] == ["system-submitter"]
    assert Path(judgement["results"][0]["logs"][9]["path"]).is_file()
    assert "10 runs of commit 85804e9" in printed.err


def copy_of_results(tmp_path: Path) -> Path:
    return shutil.copytree(RESULTS / "cpu_demo", tmp_path / "results" / "cpu_demo").parent


def refused(tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str], system: str = "cpu_demo") -> str:
    out = tmp_path / "out" / "org"
    out.parent.mkdir()
    arguments = ["--out", str(out), "--submitter", "org", "--results", str(results), system]
    assert main(["package", *arguments]) == 2
    assert list(out.parent.iterdir()) == []
    return capsys.readouterr().err


def test_what_the_judge_would_refuse_is_refused_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = copy_of_results(tmp_path)
    (results / "cpu_demo/bert/result_9.txt").unlink()
    shutil.copy(results / "cpu_demo/bert/result_0.txt", results / "cpu_demo/bert/result_1.txt")
    message = refused(tmp_path, results, capsys)
    assert "9 result_*.txt; expected exactly 10" in message
    assert "result_1.txt logs seed 2557128240, as result_0.txt does" in message


@pytest.mark.parametrize(
    ("system", "expected"),
    [("dgxa100", "there are results of: cpu_demo"), ("../results/cpu_demo", "found no result_*.txt of")],
)
def test_an_unknown_system_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], system: str, expected: str
) -> None:
    assert expected in refused(tmp_path, RESULTS, capsys, system)


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "cannot be read"), ("{", "is not valid JSON"), ("[]", "expected one JSON object"), ("{}", "differs from")],
)
def test_runs_without_one_description_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, expected: str
) -> None:
    results = copy_of_results(tmp_path)
    described = results / "cpu_demo/bert/result_4/system.json"
    described.unlink() if content is None else described.write_text(content)
    message = refused(tmp_path, results, capsys)
    assert "result_4/system.json" in message
    assert expected in message


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["package", "--out", str(tmp_path / "no" / "org"), "--submitter", "org", "cpu_demo"]) == 2
    assert "No such file or directory" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["package", "--out", str(tmp_path), "--submitter", "org", "cpu_demo"]) == 2
    assert "no empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
