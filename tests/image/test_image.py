"""The image for real, without root: buildah builds it, podman runs it, charliecloud runs it under a real Slurm.

BERTBENCH_IMAGE asks for it, as `make image-test` does: `demo` trains to the target, `smoke` takes a few steps.
BERTBENCH_IMAGE_BUILD may hold buildah's build options: what a site needs for pip to find its packages. Where root runs
these tests, all of it is done by the ordinary user IMAGE_USER.
"""

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from compliance import judge_log
from tests.image.ordinary import USER, as_user, copy_source, remove
from tests.slurm import cluster as slurm

HOW = os.environ.get("BERTBENCH_IMAGE")
ABSENT = [
    name for name in ("buildah", "podman", "runc", "newuidmap", "ch-run", "mmdebstrap") if shutil.which(name) is None
]
WORDS = ["cpu_demo", "--smoke"] if HOW == "smoke" else ["cpu_demo"]
LOG = Path("cpu_demo/smoke/smoke_0.txt" if HOW == "smoke" else "cpu_demo/bert/result_0.txt")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(HOW not in ("smoke", "demo"), reason="set BERTBENCH_IMAGE to smoke or demo to build the image"),
    pytest.mark.skipif(bool(ABSENT), reason=f"found no {', '.join(ABSENT)}; tests/image/install.sh installs them"),
]


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    """The ordinary user's folder: the image in `storage`, unpacked in `bertbench`, made of `source`."""
    work = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="bertbench-image-"))
    copy_source(work)
    try:
        options = shlex.split(os.environ.get("BERTBENCH_IMAGE_BUILD", ""))
        as_user(work / "source/tests/image/build.sh", work / "source", work, *options, limit_s=1800)
        yield work
    finally:
        remove(work)


def assert_ran(log: Path) -> None:
    verdict = judge_log(log, "5.0.0")
    assert verdict.facts is not None
    if HOW == "demo":
        assert (verdict.verdict, verdict.breaches, verdict.facts.status) == ("pass", (), "success")
    assert verdict.facts.evaluations, log.read_text()[-2000:]


def test_podman_runs_the_image_as_an_ordinary_user(work: Path) -> None:
    runs = work / "podman-runs"
    as_user("mkdir", runs, limit_s=10)
    storage = ["--root", work / "storage", "--runroot", work / "run", "--storage-driver", "overlay"]
    # root in the container is the ordinary user outside: so the results are that user's
    as_user(
        "podman", *storage, "--cgroup-manager", "cgroupfs", "--runtime", "runc", "run", "--rm", "--network", "host",
        "--user", "0", "--volume", f"{runs}:/runs", "localhost/bertbench", *WORDS, limit_s=900,
    )  # fmt: skip
    assert_ran(runs / LOG)
    assert (runs / LOG).owner() == USER


@pytest.mark.skipif(slurm.missing() is not None, reason=slurm.missing() or "")
def test_charliecloud_runs_the_image_in_an_ordinary_users_slurm_job(work: Path) -> None:
    runs, folder = work / "slurm-runs", work / "slurm"
    folder.mkdir()
    with slurm.running(folder) as cluster:
        site = {"CONTAINER": "charliecloud", "CONT": str(work / "bertbench"), "DATADIR": str(work / "bertbench/data")}
        said = as_user(
            "sbatch", "--nodes=1", "--ntasks-per-node=2", "--time=20", f"--output={work}/job.out", f"--chdir={work}",
            work / "source/benchmarks/bert/run.sub", *WORDS,
            limit_s=30, variables={**cluster.environment, **site, "LOGDIR": str(runs)},
        )  # fmt: skip
        state = cluster.wait(said.split()[-1], 900)
    assert state["JobState"] == "COMPLETED", (work / "job.out").read_text()
    assert state["UserId"].startswith(f"{USER}(")
    assert_ran(runs / LOG)
