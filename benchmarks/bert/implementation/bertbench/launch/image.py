"""Write an image's name in the form that the program which starts it reads. CONT may have the form of any of them.

docker names an image `registry.example.org/team/name:tag`. pyxis, which uses enroot, separates registry and name by #.
apptainer takes a word without docker:// to be a file, and enroot takes only files. As in docker, a first part with a
dot or a port, or localhost, is a registry; anything else is a name on Docker Hub.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Literal

from bertbench.common.children import dying_with_us
from bertbench.common.errors import ConfigError

Starter = Literal["pyxis", "enroot", "apptainer", "charliecloud", "docker"]
"""What starts an image in a Slurm job."""
_PROGRAMS: dict[Starter, tuple[str, ...]] = {
    "enroot": ("enroot",),
    "apptainer": ("apptainer", "singularity"),
    "charliecloud": ("ch-run",),
}
"""The programs that start an image in each way; a machine needs any one of them."""
_ANSWER_S = 10
_IN_REGISTRY = re.compile(r"(docker://)?([^/#]*[.:][^/#]*|localhost)/([^#]+)")
_FILES = (".sqsh", ".sif", ".img", ".simg", ".tar")


def starters_of(image: str) -> tuple[Starter, ...]:
    """Return what can start an image, in the order in which run.sub looks for it on a node."""
    if Path(image).is_dir():
        return ("charliecloud", "apptainer")
    if image.endswith(".sif"):
        return ("apptainer",)
    if image.endswith(".sqsh"):
        return ("pyxis", "enroot")
    return ("pyxis", "apptainer", "docker")


def can_start(starter: Starter) -> bool:
    """Return whether this machine can start images with `starter`."""
    match starter:
        case "pyxis":  # a plug-in, whose options srun lists
            return "--container-image" in _answer("srun", "--help")
        case "docker":  # many machines have its program without its daemon
            return bool(_answer("docker", "info", "--format", "{{.ServerVersion}}"))
        case _:
            return any(shutil.which(program) for program in _PROGRAMS[starter])


def _answer(*command: str) -> str:
    """Return what a command prints; empty text if it fails or isn't installed."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_ANSWER_S, preexec_fn=dying_with_us()
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def image_for(starter: Starter, image: str) -> str:
    """Return the image in the form that `starter` takes; a file becomes an absolute path, valid in any folder.

    Raises ConfigError for a file that doesn't exist, and for a file if `starter` is docker.
    """
    path = Path(image)
    looks_like_a_file = image.startswith(("/", ".", "~")) or image.endswith(_FILES) or path.exists()
    is_file = looks_like_a_file or starter in ("charliecloud", "enroot")
    if is_file and starter == "docker":
        raise ConfigError(f"CONT is {image}: docker takes an image's name, such as registry.example.org/bertbench:1")
    if is_file:
        if not path.exists():
            raise ConfigError(
                f"CONT is {image}: no such file or folder; make the image, or correct CONT (docs/running.md)"
            )
        return str(path.absolute())
    if starter == "pyxis":
        in_registry = _IN_REGISTRY.fullmatch(image)
        return in_registry.expand(r"\1\2#\3") if in_registry else image
    plain = image.replace("#", "/", 1)
    if starter == "apptainer":
        return plain if "://" in plain else f"docker://{plain}"
    return plain.removeprefix("docker://")
