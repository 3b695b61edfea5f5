"""docs/compatibility.md agrees with pip, make and docker, and every row says how it was tested."""

import re
import tomllib
from typing import NamedTuple

import pytest

from bertbench.machine.torch_version import NEWEST, OLDEST
from tests.docs.listing import REPOSITORY

PROJECT, JUDGE = (
    tomllib.loads((REPOSITORY / folder / "pyproject.toml").read_text())["project"] for folder in ("", "compliance")
)
RESULT = re.compile(r"`[^`]+`.*\b(\d+ passed, \d+ skipped|passes|parts passed|passed with)\b.*20\d\d-\d\d-\d\d")


class Row(NamedTuple):
    """A row of the table, as it is written."""

    python: str
    torch: str
    triton: str
    cuda: str
    gpu: str
    container: str
    tested: str

    @property
    def is_tested(self) -> bool:
        return not self.tested.startswith("untried")


def table() -> list[Row]:
    lines = (REPOSITORY / "docs" / "compatibility.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [Row(*row) for row in cells[2:] if len(row) == len(Row._fields)]


ROWS = table()
TESTED = [row for row in ROWS if row.is_tested]


def minor(version: str) -> tuple[int, int]:
    first, second, *_ = map(int, re.findall(r"\d+", version))
    return first, second


def bounds(requirements: list[str], name: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """The lower bound, and the upper one, which is not included."""
    (ours,) = [line for line in requirements if re.match(rf"{name}\W", line)]
    lower, upper = re.findall(r"[\d.]+", ours.partition(";")[0])
    return minor(lower), minor(upper)


def pin(name: str) -> str:
    (version,) = re.findall(rf"^{name}==(\S+)$", (REPOSITORY / "constraints.txt").read_text(), re.M)
    return version


def row_of(command: str) -> Row:
    (row,) = [row for row in ROWS if f"`{command}`" in row.tested]
    return row


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.python} {row.torch} {row.gpu} {row.container}")
def test_a_row_names_its_command_result_and_date_or_is_untried(row: Row) -> None:
    assert RESULT.search(row.tested) or row.tested.startswith("untried")


def test_pip_takes_the_versions_of_torch_and_triton_from_the_oldest_to_the_newest_tested() -> None:
    tested = {minor(row.torch) for row in TESTED}
    (oldest, untested) = bounds(PROJECT["dependencies"], "torch")
    assert (oldest, untested) == (min(tested), (max(tested)[0], max(tested)[1] + 1))
    assert (min(tested), max(tested)) == (OLDEST, NEWEST)
    between = {(2, number) for number in range(oldest[1], untested[1] + 1)}
    assert between <= {minor(row.torch) for row in ROWS}, "every version has a row, and the next one too"
    interpreted = {minor(row.triton) for row in TESTED}
    (oldest_triton, untested_triton) = bounds(PROJECT["optional-dependencies"]["kernels"], "triton")
    assert (oldest_triton, untested_triton) == (min(interpreted), (max(interpreted)[0], max(interpreted)[1] + 1))


def test_the_versions_of_python_that_the_package_names_are_those_tested() -> None:
    tested = {minor(row.python) for row in TESTED}
    for project in (PROJECT, JUDGE):
        named = [line.removeprefix("Programming Language :: Python :: ") for line in project["classifiers"]]
        assert {minor(version) for version in named} == tested
        assert minor(project["requires-python"]) == min(tested)
    assert (3, max(tested)[1] + 1) in {minor(row.python) for row in ROWS}, "the next one has a row, untried"


def test_the_rows_of_make_name_what_make_installs() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    (floor,) = re.findall(r"torch==([\d.]+)/", makefile)
    assert row_of("make test-floor").torch == floor
    assert minor(row_of("make test-newest").torch) == NEWEST
    assert (row_of("make test").torch, row_of("make test").triton) == (pin("torch"), pin("triton"))


def test_the_dockerfiles_container_has_a_row() -> None:
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    (container,) = re.findall(r"^ARG FROM_IMAGE_NAME=nvcr\.io/nvidia/(\S+)@", dockerfile, re.M)
    (torch, cuda) = re.findall(r"The default base has PyTorch (\S+) for CUDA (\S+)\. ", dockerfile)[0]
    assert [(row.torch, row.cuda) for row in ROWS if container in row.container] == [(torch, cuda)]
