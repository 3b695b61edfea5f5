"""Optimizers and what they can't be combined with: refused with the remedy."""

import pytest

from bertbench.common.errors import ConfigError
from bertbench.config import load_system


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("name=muon", "impl=triton"), "has kernels for adam and lamb only, not for optimizer.name muon"),
    ],
)
def test_what_an_optimizer_has_not_is_refused(settings: tuple[str, ...], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load_system("cpu_demo", [f"optimizer.{setting}" for setting in settings])


def test_split_matrices_are_refused() -> None:
    with pytest.raises(ConfigError, match="updates whole matrices, which parallel splits"):
        load_system("cpu_demo", ["optimizer.name=muon", "parallel.fully_shard=true"])


def test_slices_are_not_summed_by_node() -> None:
    with pytest.raises(ConfigError, match=r"sums whole gradients, .* scatters them"):
        load_system("cpu_demo", ["optimizer.sharded=true", "communication.hierarchical=true"])


def test_options_of_muon_reach_the_optimizer() -> None:
    settings = ("name=muon", "muon.momentum=0.9", "muon.nesterov=false", "muon.ns_steps=3", "weight_decay=0.1")
    options = load_system("cpu_demo", [f"optimizer.{setting}" for setting in settings]).optimizer
    assert (options.muon.momentum, options.muon.nesterov, options.muon.ns_steps) == (0.9, False, 3)
    assert options.weight_decay == 0.1
