"""Remember that a system's fast paths held, so that its next run on such GPUs doesn't check them again.

A verdict depends on the commit, torch, Triton, the driver, the cards of all ranks, and the settings. Only a check in
which every path held is remembered, because what fails may be repaired: a compiler is installed, another process ends.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace

import pynvml
import torch

from bertbench.common.paths import cache_folder
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.machine.choose_arithmetic import Arithmetic
from bertbench.machine.gpus import ask_driver
from bertbench.machine.measurements import read_measurements, remember_measurement
from bertbench.machine.processor import processor
from bertbench.machine.provenance import unchanged_commit
from bertbench.training.self_check import check_fast_paths, paths_of

Check = Callable[[System, World, Arithmetic], Arithmetic]


def check_unless_known(
    system: System, world: World, fastest: Arithmetic, check: Check = check_fast_paths
) -> Arithmetic:
    """Return the arithmetic without the paths that compute something else: all of them, if they held before.

    Collective; see `check_fast_paths`.
    """
    cache = cache_folder() / "fast_paths.json"
    key = _key(system, world, fastest)
    names = [path.name for path in paths_of(fastest)]
    is_known = world.leads and key is not None and read_measurements(cache).get(key) == names
    if world.from_all(is_known)[0]:
        return replace(fastest, checked=tuple(names))
    found = check(system, world, fastest)
    if world.leads and key is not None and list(found.checked) == names and not found.refused:
        remember_measurement(cache, key, names)
    return found


def _key(system: System, world: World, fastest: Arithmetic) -> str | None:
    """Return on rank 0 what a verdict depends on; None if the code isn't that of a commit. Collective."""
    kinds = sorted(set(world.from_all(_card_and_software(world.device))))
    commit = unchanged_commit() if world.leads else None
    if commit is None:
        return None
    settings = f"{system.model_dump_json()} {replace(fastest, source='')}"
    digest = hashlib.sha256(settings.encode()).hexdigest()
    return ", ".join([f"commit {commit}", *kinds, f"{world.size} ranks", f"settings {digest}"])


def _card_and_software(device: torch.device) -> str:
    if device.type == "cpu":
        card = processor()
    else:
        card = f"{torch.cuda.get_device_name(device)}, driver {ask_driver(pynvml.nvmlSystemGetDriverVersion)}"
    return f"{card}, torch {torch.__version__}, {_triton()}"


def _triton() -> str:
    try:
        import triton  # noqa: PLC0415 - optional
    except ImportError:
        return "no Triton"
    return f"Triton {triton.__version__}"
