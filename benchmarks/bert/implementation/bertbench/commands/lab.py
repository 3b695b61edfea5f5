"""`bertbench lab`: find the laboratory, a package of its own that lies in a checkout and in no installation."""

import importlib
import os
import sys
from collections.abc import Sequence

from bertbench.common.errors import ConfigError
from bertbench.common.paths import REPOSITORY


def commands() -> Sequence[tuple[str, str, str]]:
    """Return name, help and package of each of its commands, and let this process and those that it starts import it.

    Raises ConfigError outside a checkout.
    """
    if REPOSITORY is None or not (REPOSITORY / "lab" / "__init__.py").is_file():
        raise ConfigError(
            "lab: an installation doesn't carry it; clone bertbench's repository, and there run `make setup` and "
            "`.venv/bin/bertbench lab`"
        )
    root = str(REPOSITORY)
    if root not in sys.path:
        sys.path.insert(0, root)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in given:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, given)])
    found: Sequence[tuple[str, str, str]] = importlib.import_module("lab.commands").COMMANDS
    return found
