"""The image's short form, for CI: the Dockerfile's every step and the entry point, in a minute and without network.

Only those packages of this environment are in the image's sight that pyproject.toml declares for a run: an import that
another one satisfies here fails there. `make image-test` has the rest: packages as they come, podman, charliecloud.
"""

import json
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bertbench.common.paths import REPOSITORY
from compliance import judge_log
from tests.image.ordinary import as_user, copy_source, remove

PYTHON = "python{}.{}".format(*sys.version_info)
ABSENT = [name for name in ("buildah", "newuidmap") if shutil.which(name) is None]
ABSENT += [] if (Path("/usr/lib") / PYTHON / "ensurepip").exists() else [f"ensurepip of the system's {PYTHON}"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(ABSENT), reason=f"found no {', '.join(ABSENT)}; tests/image/install.sh installs them"),
]


def closure(requirements: Iterable[str]) -> Iterator[Distribution]:
    """Yield the installed distributions that satisfy the requirements, and theirs in turn."""
    seen, open_ones = set(), [Requirement(line) for line in requirements]
    while open_ones:
        one = open_ones.pop()
        name = canonicalize_name(one.name)
        if name not in seen and (one.marker is None or one.marker.evaluate({"extra": ""})):
            seen.add(name)
            found = distribution(name)
            yield found
            open_ones += [Requirement(line) for line in found.requires or []]


def link_packages(folder: Path) -> None:
    """Fill `folder` with the packages that the image installs; its ordinary user may not read this environment."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    for package in closure([*project["project"]["dependencies"], *project["build-system"]["requires"]]):
        for file in package.files or []:
            if ".." not in file.parts:  # scripts lie outside
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(file.locate(), folder / file)
                except OSError:  # another file system
                    shutil.copy2(file.locate(), folder / file)


@pytest.fixture
def work() -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="bertbench-image-"))
    try:
        copy_source(work)
        link_packages(work / "packages")  # after the change of owner: links share theirs
        yield work
    finally:
        remove(work)


def test_the_dockerfile_builds_and_its_entry_point_runs(work: Path) -> None:
    as_user(work / "source/tests/image/short.sh", work, limit_s=900, variables={"COMMIT": f"{'12ab' * 10}-dirty"})
    log = work / "smoke_0.txt"
    judgement = judge_log(log, "5.0.0")
    assert judgement.facts is not None, f"{judgement.breaches}\n{log.read_text(encoding='utf-8')[-2000:]}"
    assert judgement.facts.evaluations
    origin = json.loads((work / "run.json").read_text(encoding="utf-8"))
    assert (origin["commit"], origin["tree_dirty"]) == ("12ab" * 10, True), "there is no git in the image"
