"""Write the packages that an image installs on its base, and the versions that pip may take: requirements.py FROM TO.

FROM contains pyproject.toml and constraints.txt. TO receives requirements.txt and constraints.txt. Packages of the base
that pyproject.toml allows stay as they are, because NVIDIA's torch and numpy are built for each other.
"""

import importlib.util
import re
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path


def main() -> None:
    """Write both files, and print what the base brings."""
    source, target = map(Path, sys.argv[1:])
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    (ours,) = [requirement for requirement in needed if requirement.startswith("torch>")]
    oldest, untested = (_minor(bound) for bound in re.findall(r"[\d.]+", ours))
    torch = _torch()
    if torch >= oldest:
        needed.remove(ours)
    installed = {_plain(name): base.version for base in distributions() if (name := base.metadata["Name"])}
    pins = (source / "constraints.txt").read_text(encoding="utf-8").splitlines()
    free = [pin for pin in pins if _plain(pin.partition("==")[0]) not in installed]
    (target / "requirements.txt").write_text("\n".join(needed) + "\n", encoding="utf-8")
    (target / "constraints.txt").write_text("\n".join(free) + "\n", encoding="utf-8")
    brought = ", ".join(f"{name} {installed[name]}" for name in ("torch", "numpy") if name in installed)
    print(f"the base brings {brought or 'neither torch nor numpy'}; {_apex()}")
    if torch >= untested:
        print(f"the base's torch is untested: pyproject.toml asks for {ours}; see docs/install.md")


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _torch() -> tuple[int, ...]:
    """Return the minor version of the base's torch, (2, 12); an empty tuple without one."""
    if importlib.util.find_spec("torch") is None:
        return ()
    import torch  # noqa: PLC0415 - only if it is installed

    return _minor(torch.__version__)


def _minor(version: str) -> tuple[int, ...]:
    # NVIDIA's builds have versions like 2.11.0a0+hash, which pip takes for older than 2.11, and would replace
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _apex() -> str:
    # the package that pip installs as `apex` is another project, without optimizers
    if importlib.util.find_spec("apex") and importlib.util.find_spec("apex.optimizers"):
        return "NVIDIA's apex is there: optimizer.impl may be apex"
    return "found no NVIDIA apex: optimizer.impl must stay torch"


if __name__ == "__main__":
    main()
