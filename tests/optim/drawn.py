"""Parameters and gradients drawn from seeds, and the section of an optimizer."""

from functools import partial
from typing import Any

import torch
from torch import nn

from bertbench.config.optimizer import OptimizerName, OptimizerSettings
from bertbench.model.shape import BertShape

TINY = BertShape(vocab_size=13, hidden_size=6, layers=2, attention_heads=2, feed_forward_size=7, max_positions=8)


def matrices(*shapes: tuple[int, ...]) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(5)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def draw_gradients(parameters: list[nn.Parameter], seed: int, scale: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = scale * torch.randn(parameter.shape, generator=generator)


def settings(name: OptimizerName, **fields: Any) -> OptimizerSettings:
    """An optimizer's section; tests pass their learning rate to its steps."""
    return OptimizerSettings(name=name, learning_rate=1.0, **fields)


adam = partial(settings, "adam")
lamb = partial(settings, "lamb")
muon = partial(settings, "muon")
