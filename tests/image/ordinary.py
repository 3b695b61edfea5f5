"""The ordinary user who builds and runs the image, and the files that this user builds it from."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bertbench.common.paths import REPOSITORY

USER = os.environ.get("IMAGE_USER", "bertbench-image") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


def as_user(*command: str | Path, limit_s: float, variables: Mapping[str, str] | None = None) -> str:
    """Return what a command prints when the ordinary user runs it."""
    known = {name: os.environ[name] for name in ("PATH", "PIP_FIND_LINKS", "BASE", "MIRROR") if name in os.environ}
    mine = {"HOME": pwd.getpwnam(USER).pw_dir, "USER": USER, "LOGNAME": USER}
    env = [f"{name}={value}" for name, value in {**known, **mine, **(variables or {})}.items()]
    switch = ["runuser", "--user", USER, "--"] if os.geteuid() == 0 else []
    words = [*switch, "env", "--ignore-environment", *env, *command]
    done = subprocess.run(words, cwd="/", stdout=subprocess.PIPE, text=True, timeout=limit_s, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}"
    return done.stdout


def copy_source(work: Path) -> None:
    """Copy the tracked files to `work`/source, and give `work` to the ordinary user."""
    files = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True).stdout
    for name in files.splitlines():
        if (REPOSITORY / name).is_file():
            (work / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, work / "source" / name)
    if os.geteuid() == 0:
        subprocess.run(["chown", "--recursive", f"{USER}:", work], check=True)


def remove(work: Path) -> None:
    """Remove `work`, whose storage contains files with other ids of the ordinary user."""
    as_user("buildah", "unshare", "rm", "-rf", work / "storage", work / "run", limit_s=300)
    shutil.rmtree(work, ignore_errors=True)
