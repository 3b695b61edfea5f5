"""The bytes that a plan counts are those that optimizers keep."""

import pytest
import torch
from torch import Tensor

from bertbench.model.bert import Bert
from bertbench.optim.build_optimizer import tensor_factory
from bertbench.optim.muon import build_muon
from bertbench.plan.memory import state_bytes
from tests.optim.drawn import TINY, muon


def test_a_complete_optimizer_has_the_counted_state() -> None:
    model = Bert(TINY)
    options = muon()
    optimizer, _ = build_muon(model, options, tensor_factory(None), None, torch.float32)
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    parameters = sum(parameter.numel() for parameter in model.parameters())
    kept = optimizer.moments(names).values()
    counted = state_bytes(options, TINY, parameters)
    assert counted == sum(4 * tensor.numel() for tensor in kept)
    averaging = options.model_copy(update={"ema_decay": 0.9})
    assert state_bytes(averaging, TINY, parameters) == counted + 4 * parameters


def test_ranks_keep_each_matrix_once() -> None:
    parameters = 30_000
    whole = state_bytes(muon(), TINY, parameters)
    shares = [state_bytes(muon(), TINY, parameters // 3, (rank, 3)) for rank in range(3)]
    assert sum(shares) == pytest.approx(whole, abs=24)
    assert max(shares) < whole / 2
