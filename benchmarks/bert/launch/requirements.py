"""Print what an image must install: pyproject.toml's dependencies, without torch where the base has a fitting one."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

_OLDEST_TORCH = (2, 11)


def main() -> None:
    """Read the pyproject.toml that the command line names."""
    project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    print(*(one for one in needed if not (one.startswith("torch>") and _has_torch())), sep="\n")


def _has_torch() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch  # noqa: PLC0415 - only where it is there

    # NVIDIA's builds are called 2.11.0a0+hash: pip would take that for older than 2.11 and install another
    found = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    return found >= _OLDEST_TORCH


if __name__ == "__main__":
    main()
