"""Find the laboratory, the package behind `bertbench lab`. A checkout has it; an installation doesn't."""

import os
import sys

from bertbench.common.errors import ConfigError
from bertbench.common.paths import REPOSITORY


def make_importable() -> None:
    """Let this process and those that it starts import the laboratory. Raises ConfigError outside a checkout."""
    if REPOSITORY is None or not (REPOSITORY / "lab" / "__init__.py").is_file():
        raise ConfigError(
            "lab is part of the repository, not of an installation; clone bertbench's repository, and run `make setup` "
            "and `.venv/bin/bertbench lab` there"
        )
    root = str(REPOSITORY)
    if root not in sys.path:
        sys.path.insert(0, root)
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in python_path:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, python_path)])
