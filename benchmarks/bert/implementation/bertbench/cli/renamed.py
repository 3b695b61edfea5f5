"""Refuse former names of commands and options, and give their new names. Each is kept for one release."""

from collections.abc import Sequence

from bertbench.common.errors import ConfigError

COMMANDS = {
    "systems": "config list",
    "show": "config show",
    "init": "config init",
    "fit": "config scale",
    "detect": "env",
    "predict": "estimate",
    "bench cost": "estimate --calibrate",
    "runs": "report --list",
    "finetune score": "finetune squad --score PREDICTIONS",
    "lab train": "lab time-to-target",
    "lab data": "lab loader",
    "lab balance": "lab assignment",
    "lab optim": "lab update",
}
"""New names by old ones."""
OPTIONS = {
    "show --schema": "config schema",
    "predict --validate": "lab forecast",
    "predict --from-kernels": "lab roofline",
    "estimate --validate": "lab forecast",
    "estimate --from-kernels": "lab roofline",
    "estimate --gpu": "estimate --gpu-model",
    "config init --gpu": "config init --gpu-model",
    "config scale --gpu": "config scale --gpu-model",
    "config show --schema": "config schema",
    "evaluate --checkpoint": "evaluate --weights",
    "fill-mask --checkpoint": "fill-mask --weights",
    "finetune squad --init": "finetune squad --weights",
    "lab time-to-target --rival-sweep": "lab time-to-target --baseline-sweep",
}
"""New commands and options by old ones; each entry is a command with one option. They are looked up before COMMANDS,
because an option may have moved to another command than the rest."""


def refuse_old_names(words: Sequence[str]) -> None:
    """Raise ConfigError if the words call a command, or give an option, by a name that it no longer has."""
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    for old, new in OPTIONS.items():
        *command, option = old.split()
        if list(words[: len(command)]) == command and option in options:
            raise ConfigError(f"`bertbench {old}` is now `bertbench {new}`")
    for old, new in COMMANDS.items():
        command = old.split()
        if list(words[: len(command)]) == command:
            raise ConfigError(f"`bertbench {old}` is now `bertbench {new}`")
