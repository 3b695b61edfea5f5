import importlib.util
from pathlib import Path

import pytest
import torch

from bertbench.common.errors import ConfigError
from bertbench.distributed.world import World
from bertbench.model.bert import Bert
from bertbench.optim import build_optimizer
from bertbench.optim.adam import MultiTensorAdam
from tests.optim.drawn import TINY, adam, lamb
from tests.ranks import run_ranks


@pytest.mark.skipif(importlib.util.find_spec("apex") is not None, reason="some apex is installed here")
def test_missing_apex_is_one_error_that_names_the_container() -> None:
    with pytest.raises(ConfigError, match=r"NVIDIA's apex isn't installed .*; run in NVIDIA's PyTorch container"):
        build_optimizer.build_optimizer(Bert(TINY), lamb(impl="apex"))


def test_another_project_called_apex_is_not_taken_for_nvidias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apex").mkdir()
    (tmp_path / "apex" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="NVIDIA's apex isn't installed"):
        build_optimizer.build_optimizer(Bert(TINY), adam(impl="apex"))


@pytest.mark.slow
def test_if_one_rank_has_no_compiler_all_ranks_fall_back_and_say_so() -> None:
    texts = run_ranks(2, arithmetic_without_a_compiler_on_rank_1)
    assert all("torch's multi-tensor operations, slower" in text for text in texts)
    assert "another rank has no compiler" in texts[0]
    assert "No working C++ compiler found" in texts[1]


def arithmetic_without_a_compiler_on_rank_1(world: World) -> str:
    build_optimizer._FUSED_FROM = 1
    no_compiler = {"cpp.cxx": (None, "/nowhere/g++"), "fx_graph_cache": False} if world.rank == 1 else {}
    with torch._inductor.config.patch(no_compiler):
        optimizer, text = build_optimizer.build_optimizer(Bert(TINY), lamb())
    assert isinstance(optimizer, MultiTensorAdam)
    return text
