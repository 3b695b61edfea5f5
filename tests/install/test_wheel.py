"""Wheels that are built from the repository and used in another folder contain all files that commands read."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import compliance
from bertbench.cli.main import main
from bertbench.common import paths
from bertbench.common.paths import REPOSITORY
from tests.conftest import Captured
from tests.install.sources import WITHOUT_NETWORK, copied_sources

CARRIED = {"systems": "benchmarks/bert/systems", "launch": "benchmarks/bert/launch"}
SCRIPTS = {"run.sub", "run_with_docker.sh"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an installed wheel, inside somebody else's repository, as a virtual environment may be."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = copied_sources(folder / "sources")
    enclosing = folder / "enclosing"
    subprocess.run(["git", "init", "--quiet", str(enclosing)], check=True)
    author = ["-c", "user.name=A", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", enclosing, *author, "commit", "--quiet", "--allow-empty", "-m", "x"], check=True)
    return unpacked_wheel(sources, enclosing / "site-packages")


def unpacked_wheel(sources: Path, folder: Path) -> Path:
    subprocess.run([*WITHOUT_NETWORK, "--wheel-dir", str(folder), str(sources)], check=True)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder)
    built.unlink()
    return folder


def installed(site: Path, folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the wheel's packages, in `folder`."""
    environment = {name: value for name, value in os.environ.items() if name not in ("DATADIR", "LOGDIR")}
    environment |= {"PYTHONPATH": str(site), **variables}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_wheel_contains_the_repositorys_files_unchanged_and_none_of_their_code(site: Path) -> None:
    assert REPOSITORY is not None
    share = site / "bertbench" / "share"
    for name, source in CARRIED.items():
        expected = {
            path.relative_to(REPOSITORY / source): path.read_bytes()
            for path in (REPOSITORY / source).rglob("*")
            if path.name in SCRIPTS or (path.suffix == ".json" and name != "launch")
        }
        assert len(expected) >= 2
        found = {path.relative_to(share / name): path.read_bytes() for path in (share / name).rglob("*.*")}
        assert found == expected
    assert (share / "run_and_time.sh").read_bytes() == (REPOSITORY / "run_and_time.sh").read_bytes()
    assert not list(share.rglob("*.py"))


def test_a_wheel_contains_every_file_of_the_packages(site: Path) -> None:
    for package in (paths.PACKAGE, Path(compliance.__file__).parent):
        ours = {path for path in package.rglob("*.*") if path.suffix in (".py", ".json", ".csv", ".cpp", ".h")}
        assert len(ours) > 20
        for path in ours:
            assert (site / path.relative_to(package.parent)).read_bytes() == path.read_bytes()


def test_a_wheel_does_not_contain_the_laboratory_and_one_line_says_where_it_is(site: Path, tmp_path: Path) -> None:
    assert {path.name for path in site.iterdir() if path.suffix != ".dist-info"} == {"bertbench", "compliance"}
    for words in (["lab"], ["lab", "step", "--help"]):
        done = installed(site, tmp_path, "-m", "bertbench", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "clone bertbench's repository" in done.stderr


def test_an_installed_bertbench_answers_like_a_clone(site: Path, tmp_path: Path, capsys: Captured) -> None:
    calls = (
        ["config", "list", "--json"],
        ["config", "show", "dgxa100_n8"],
        ["launch", "dgxa100_n2", "--dry-run", "--json"],
    )
    code = f"from bertbench.cli.main import main; print([main(words) for words in {calls}])"
    done = installed(site, tmp_path, "-c", code)  # one process: to import torch takes seconds
    print([main(words) for words in calls])
    here = capsys.readouterr().out.replace(f"{paths.SCRIPTS_HOME}/", f"{site}/bertbench/share/")
    assert done.stdout == here, done.stderr
    assert done.stdout.endswith("[0, 0, 0]\n")


def test_data_and_runs_are_in_the_working_directory_or_where_variables_say(site: Path, tmp_path: Path) -> None:
    code = "from bertbench.common.paths import *; print(data_path('demo'), data_path('/abs'), runs_folder(), home())"
    said = installed(site, tmp_path, "-c", code).stdout.split()
    assert said == [f"{tmp_path}/data/demo", "/abs", f"{tmp_path}/runs", str(tmp_path)]
    said = installed(site, tmp_path, "-c", code, DATADIR="/d", LOGDIR="/l").stdout.split()
    assert said == ["/d/demo", "/abs", "/l", str(tmp_path)]


@pytest.mark.slow
def test_installed_code_has_no_commit_even_inside_a_repository(site: Path, tmp_path: Path) -> None:
    code = "import json; from bertbench.machine.provenance import provenance; print(json.dumps(provenance()))"
    origin = json.loads(installed(site, tmp_path, "-c", code).stdout)
    assert (origin["commit"], origin["tree_dirty"]) == (None, None)


@pytest.mark.slow
def test_an_installed_bertbench_trains_in_the_working_directory(site: Path, tmp_path: Path, tiny_file: str) -> None:
    done = installed(site, tmp_path, "-m", "bertbench", "train", tiny_file, "--json")
    assert done.returncode == 3, done.stderr  # six steps reach no target
    log = Path(json.loads(done.stdout)["log"])
    assert log == tmp_path / "runs" / "tiny" / "bert" / "result_0.txt"
    assert log.is_file()
