"""Tensor parallelism: the ranks of a node share the heads and the feed-forward columns of every layer.

Query, key, value and the first feed-forward matrix are split by rows of outputs, the two matrices behind them by
columns of inputs, so that a layer needs two all-reduces forward and two backward (Shoeybi et al. 2019, arXiv
1909.08053). Embeddings, LayerNorms and heads stay whole on every rank: in BERT-Large the vocabulary is 9 % of the
weights and, computed for masked tokens only, 2 % of the work.

Hidden states are the same on all ranks of a group, so their dropout must be too: the ranks share a random stream.
Attention probabilities belong to each rank's own heads, so there each rank draws from a stream of its own.
"""

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from bertbench.common.seeding import derive
from bertbench.model.encoder import EncoderLayer
from bertbench.parallel.stage import Stage

_SEED_LIMIT = 2**31


def split_layers(stage: Stage, mesh: DeviceMesh) -> None:
    """Keep this rank's share of every layer of a stage; all ranks of the mesh must call it."""
    for layer in stage.layers.values():
        assert isinstance(layer, EncoderLayer)
        plan = {
            # once for all three, so that their gradients are summed before they are all-reduced
            "qkv": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate()),
            **{f"qkv.{part}": ColwiseParallel() for part in range(3)},
            "attention_output": RowwiseParallel(),
            "feed_forward_in": ColwiseParallel(),
            "feed_forward_out": RowwiseParallel(),
        }
        parallelize_module(layer, mesh, plan)
        layer.heads //= mesh.size()
        if layer.attention_dropout:
            _own_stream(layer, mesh.get_local_rank())


def _own_stream(layer: EncoderLayer, rank: int) -> None:
    """Draw dropout between the projections from a stream of this rank's own.

    Its seed comes from the shared stream, which recomputation restores, so the draws repeat.
    """
    held: list[tuple[torch.Generator, torch.Tensor]] = []

    def leave(_: nn.Module, __: Any, output: torch.Tensor) -> None:
        if not layer.training:
            return
        seed = derive(int(torch.randint(_SEED_LIMIT, ()).item()), "tensor", rank)
        generator = _generator(output.device)
        held.append((generator, generator.get_state()))
        generator.manual_seed(seed)

    def come_back(_: nn.Module, __: Any) -> None:
        if held:
            generator, state = held.pop()
            generator.set_state(state)

    layer.qkv.register_forward_hook(leave)
    layer.attention_output.register_forward_pre_hook(come_back)


def _generator(device: torch.device) -> torch.Generator:
    return torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[device.index]
