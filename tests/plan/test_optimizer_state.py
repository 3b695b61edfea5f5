"""The bytes that a plan counts are those that optimizers keep."""

import torch
from torch import Tensor

from bertbench.model.bert import Bert
from bertbench.optim.muon import build_muon
from bertbench.plan.memory import state_bytes
from tests.optim.drawn import TINY, muon


def test_a_complete_optimizer_has_the_counted_state() -> None:
    model = Bert(TINY)
    options = muon()
    optimizer, _ = build_muon(model, options, torch.float32)
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    parameters = sum(parameter.numel() for parameter in model.parameters())
    kept = optimizer.moments(names).values()
    counted = state_bytes(options, TINY, parameters)
    assert counted == sum(4 * tensor.numel() for tensor in kept)
    averaging = options.model_copy(update={"ema_decay": 0.9})
    assert state_bytes(averaging, TINY, parameters) == counted + 4 * parameters
