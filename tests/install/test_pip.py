"""`pip install` of what a release publishes, the wheel and the source distribution, each into a fresh environment.

The environments see the dependencies of the tests' own one, so that nothing is downloaded: torch alone has gigabytes.
`pip check` compares them with what the package asks for.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import bertbench
from bertbench.common.paths import REPOSITORY
from tests.compliance.packages import write_package
from tests.install.sources import WITHOUT_NETWORK, copied_sources

pytestmark = pytest.mark.slow

BUILT = {"wheel": "bertbench-*.whl", "sdist": "bertbench-*.tar.gz"}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, built as `python -m build` does: the wheel from the source distribution."""
    folder = tmp_path_factory.mktemp("distributions")
    sources = copied_sources(folder / "sources")
    hook = f"from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})"
    subprocess.run([sys.executable, "-c", hook], cwd=sources, check=True, capture_output=True)
    (sdist,) = folder.glob(BUILT["sdist"])
    subprocess.run([*WITHOUT_NETWORK, "--wheel-dir", str(folder), str(sdist)], check=True)
    return folder


@pytest.fixture(scope="module", params=BUILT)
def environment(request: pytest.FixtureRequest, distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment into which pip has installed the distribution."""
    folder = tmp_path_factory.mktemp(request.param)
    venv.create(folder / "env", with_pip=True)
    share_dependencies(folder / "env")
    (distribution,) = distributions.glob(BUILT[request.param])
    pip_install(folder / "env", distribution)
    return folder / "env"


def share_dependencies(environment: Path) -> None:
    """Let an environment import the packages of this one, behind its own. Editable packages of this one stay out."""
    older = [environment / "bin" / "python", "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools"]
    subprocess.run(older, check=True, capture_output=True)  # Python 3.11 brings one that is too old to build with
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")


def pip_install(environment: Path, source: Path) -> None:
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed"]
    subprocess.run([environment / "bin" / "python", "-m", "pip", "install", *options, source], check=True)


def run(environment: Path, folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run an installed program in a folder outside of the repository."""
    unset = ("DATADIR", "LOGDIR", "PYTHONPATH")
    variables = {name: value for name, value in os.environ.items() if name not in unset}
    command = [str(environment / "bin" / program), *words]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def test_the_program_and_the_library_are_of_this_version(environment: Path, tmp_path: Path) -> None:
    assert run(environment, tmp_path, "bertbench", "--version").stdout == f"bertbench {bertbench.__version__}\n"
    code = "import bertbench, importlib.metadata as m; print(bertbench.__file__, m.version('bertbench'))"
    file, version = run(environment, tmp_path, "python", "-c", code).stdout.split()
    assert Path(file).is_relative_to(environment)
    assert version == bertbench.__version__


def test_pip_finds_every_dependency_in_a_version_that_the_package_allows(environment: Path, tmp_path: Path) -> None:
    said = run(environment, tmp_path, "python", "-m", "pip", "check").stdout
    assert [line for line in said.splitlines() if line.startswith("bertbench ")] == []


def test_an_installed_program_lists_trains_and_judges(environment: Path, tmp_path: Path, tiny_file: str) -> None:
    listed = run(environment, tmp_path, "bertbench", "config", "list").stdout
    assert {"cpu_demo", "gpu_1", "dgxa100_n8"} <= {line.split()[0] for line in listed.splitlines() if line.strip()}
    trained = run(environment, tmp_path, "bertbench", "train", tiny_file)
    assert trained.returncode == 3, trained.stderr  # six steps reach no target
    log = tmp_path / "runs" / "tiny" / "bert" / "result_0.txt"
    judged = run(environment, tmp_path, "bertbench", "judge", str(log))
    assert (judged.returncode, judged.stdout.split()[0]) == (1, "FAIL")


def test_the_judge_alone_installs_and_judges(tmp_path: Path) -> None:
    assert REPOSITORY is not None
    shutil.copytree(REPOSITORY / "compliance", tmp_path / "compliance")
    venv.create(tmp_path / "env", with_pip=True)
    share_dependencies(tmp_path / "env")
    pip_install(tmp_path / "env", tmp_path / "compliance")
    (metadata,) = (tmp_path / "env").glob("lib/python*/site-packages/bertbench_compliance*/METADATA")
    needed = [line.split()[1] for line in metadata.read_text().splitlines() if line.startswith("Requires-Dist")]
    assert [re.split("[<>=]", name)[0] for name in needed] == ["mlperf-logging", "pyyaml"], "no torch"
    log = write_package(tmp_path / "package") / "result_0.txt"
    judged = run(tmp_path / "env", tmp_path / "package", "python", "-m", "compliance", str(log))
    assert (judged.returncode, judged.stdout[:5]) == (0, "PASS ")
    code = "import compliance, importlib.metadata as m; print(compliance.__file__, m.version('bertbench-compliance'))"
    file, version = run(tmp_path / "env", tmp_path / "package", "python", "-c", code).stdout.split()
    assert Path(file).is_relative_to(tmp_path / "env")
    assert version == bertbench.__version__
