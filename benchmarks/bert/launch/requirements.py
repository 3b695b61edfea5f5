"""Write what an image must install on its base, and the versions that pip is held to: requirements.py FROM TO.

FROM holds pyproject.toml and constraints.txt, TO gets requirements.txt and constraints.txt. What the base has and
pyproject.toml allows stays as it is: NVIDIA's torch and numpy are built for each other.
"""

import importlib.util
import re
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

_OLDEST_TORCH = (2, 11)


def main() -> None:
    """Write both files, and say what the base brings."""
    source, target = map(Path, sys.argv[1:])
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    needed = [one for one in needed if not (one.startswith("torch>") and _has_torch())]
    found = {_plain(name): base.version for base in distributions() if (name := base.metadata["Name"])}
    pins = (source / "constraints.txt").read_text(encoding="utf-8").splitlines()
    free = [pin for pin in pins if _plain(pin.partition("==")[0]) not in found]
    (target / "requirements.txt").write_text("\n".join(needed) + "\n", encoding="utf-8")
    (target / "constraints.txt").write_text("\n".join(free) + "\n", encoding="utf-8")
    brought = ", ".join(f"{name} {found[name]}" for name in ("torch", "numpy") if name in found)
    print(f"the base brings {brought or 'neither torch nor numpy'}; {_apex()}")


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _has_torch() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch  # noqa: PLC0415 - only where it is there

    # NVIDIA's builds are called 2.11.0a0+hash: pip would take that for older than 2.11 and install another
    found = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    return found >= _OLDEST_TORCH


def _apex() -> str:
    # the package that pip installs as `apex` is another project, without optimizers
    if importlib.util.find_spec("apex") and importlib.util.find_spec("apex.optimizers"):
        return "NVIDIA's apex is there: optimizer.impl may be apex"
    return "found no NVIDIA apex: optimizer.impl must stay torch"


if __name__ == "__main__":
    main()
