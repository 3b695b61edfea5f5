"""The losses of 20 steps by each technique equal those recorded when the techniques were settings of the product."""

import json
from pathlib import Path

import pytest

from tests.losses.net import MUON, PARTS, Net, difference, processor

RECORDED = Path(__file__).with_name("recorded.json")
BEFORE = ("clip.mode=before", "clip.max_norm=0.3")
RUNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "int8": (("int8",), ()),
    "int8 clipped by bucket": (
        ("int8",), ("clip.mode=bucket", "clip.max_norm=0.3", "communication.bucket_mb=0.01"),
    ),
    "int8 alone": (("int8",), ("launch.ranks_per_node=1", *BEFORE)),
    "topk": (("topk", "share=0.05"), ()),
    "topk clipped before": (("topk", "share=0.05"), BEFORE),
    "powersgd": (("powersgd", "rank=2", "start_step=4"), ()),
    "powersgd with lamb": (("powersgd", "start_step=3"), ("optimizer.name=lamb",)),
    "delayed": (("delayed",), ()),
    "delayed by 0": (("delayed", "steps=0"), ()),
    "delayed by 2, corrected, bf16": (("delayed", "steps=2", "correction_steps=8", "compression=bf16"), ()),
    "delayed clipped before": (("delayed",), BEFORE),
    "delayed with muon": (("delayed",), MUON),
    "local_sgd": (("local_sgd", "every_steps=3"), ()),
    "local_sgd with muon": (
        ("local_sgd", "every_steps=3"), ("optimizer.name=muon", "model.initial_weights=mimetic"),
    ),
    "diloco": (("diloco", "every_steps=3", "outer_learning_rate=0.8", "outer_momentum=0.2"), ()),
    "diloco with lamb in parts": (("diloco", "every_steps=4"), ("optimizer.name=lamb", *PARTS)),
}  # fmt: skip
"""For each run, the technique with its options, and the settings."""
FAST = ("topk clipped before",)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Net:
    return Net(tmp_path_factory.mktemp("net"))


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in RUNS]
)
def test_a_technique_has_the_recorded_losses(net: Net, name: str) -> None:
    technique, settings = RUNS[name]
    everywhere = json.loads(RECORDED.read_text())
    here = processor()
    expected = everywhere.get(here) or next(iter(everywhere.values()))
    losses = net.pretraining_losses(settings, technique)
    assert difference(losses, expected[name], same_processor=here in everywhere) is None
