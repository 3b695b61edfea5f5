"""pip, make and the warning about torch agree on the versions that were tested."""

import re
import tomllib

from bertbench.machine.torch_version import NEWEST, OLDEST
from tests.docs.listing import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def minor(version: str) -> tuple[int, int]:
    first, second, *_ = map(int, re.findall(r"\d+", version))
    return first, second


def test_pip_takes_torch_from_the_oldest_to_the_newest_tested() -> None:
    (torch,) = [line for line in PROJECT["dependencies"] if re.match(r"torch\W", line)]
    lower, upper = map(minor, re.findall(r"[\d.]+", torch.partition(";")[0]))
    assert (lower, upper) == (OLDEST, (NEWEST[0], NEWEST[1] + 1))


def test_make_tests_with_the_oldest_torch() -> None:
    (floor,) = re.findall(r"torch==([\d.]+)/", (REPOSITORY / "Makefile").read_text())
    assert minor(floor) == OLDEST
