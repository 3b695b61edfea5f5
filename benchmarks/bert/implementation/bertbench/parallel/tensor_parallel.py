"""Tensor parallelism: the ranks of a node share the heads and the feed-forward columns of every layer.

Query, key, value and the first feed-forward matrix are split by rows of outputs, the two matrices behind them by
columns of inputs, so that a layer needs two all-reduces forward and two backward (Shoeybi et al. 2019, arXiv
1909.08053). The rows of the vocabulary are split too (vocabulary.py). LayerNorms, position and segment embeddings, and
what else the heads have stay whole on every rank.

Hidden states are the same on all ranks of a group, so their dropout must be too: the ranks share a random stream.
Attention probabilities belong to each rank's own heads, so there each rank draws from a stream of its own.

Sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2) splits what is the same: between the
products of a layer each rank keeps an equal share of the tokens. A gather in front of the first product and a
reduce-scatter behind the second send what the all-reduce did. The embeddings' LayerNorm and the heads compute all
tokens on every rank.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    parallelize_module,
)

from bertbench.common.seeding import derive
from bertbench.model.encoder import EncoderLayer
from bertbench.parallel.stage import Stage

_SEED_LIMIT = 2**31


def split_layers(stage: Stage, mesh: DeviceMesh, sequence: bool) -> None:
    """Keep this rank's share of every layer of a stage, with `sequence` of the tokens between products too.

    Layers move to the mesh's device one by one, so that it never holds more than one whole layer. All ranks of the mesh
    must call it. With `sequence`, the ranks must divide the tokens of every microbatch.
    """
    between = Shard(0) if sequence else Replicate()
    for layer in stage.encoder_layers():
        plan = {
            # once for all three, so that their gradients are summed before they are sent
            "qkv": PrepareModuleInput(input_layouts=between, desired_input_layouts=Replicate()),
            **{f"qkv.{part}": ColwiseParallel() for part in range(3)},
            "attention_output": RowwiseParallel(output_layouts=between),
            "feed_forward_in": ColwiseParallel(input_layouts=between),
            "feed_forward_out": RowwiseParallel(output_layouts=between),
        }
        layer.to(mesh.device_type)
        parallelize_module(layer, mesh, plan)
        layer.heads //= mesh.size()
        rank = mesh.get_local_rank()
        if sequence and (layer.attention_dropout or layer.hidden_dropout):
            _own_stream(layer, rank, until=layer.feed_forward_norm)
        elif layer.attention_dropout:
            _own_stream(layer, rank, until=layer.attention_output)
    if sequence:
        _share_tokens(stage, mesh)


def norm_parameters(stage: Stage) -> list[nn.Parameter]:
    """Return the LayerNorms' parameters in the layers: with `sequence`, a rank's gradient is of its own tokens."""
    return [
        parameter
        for layer in stage.encoder_layers()
        for norm in (layer.attention_norm, layer.feed_forward_norm)
        for parameter in norm.parameters()
    ]


def _share_tokens(stage: Stage, mesh: DeviceMesh) -> None:
    """Give each rank its share of the embedded tokens, and the heads the tokens of all."""
    plan: dict[str, ParallelStyle] = {}
    if stage.is_first:
        plan["embeddings"] = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0))
    if stage.is_last:
        last = f"layers.{list(stage.layers)[-1]}"
        plan[last] = PrepareModuleOutput(output_layouts=Shard(0), desired_output_layouts=Replicate())
    parallelize_module(stage, mesh, plan)


def _own_stream(layer: EncoderLayer, rank: int, until: nn.Module) -> None:
    """Draw dropout behind the first projection, up to and in the module `until`, from a stream of this rank's own.

    Its seed comes from the shared stream, which recomputation restores, so the draws repeat.
    """
    shared_states: list[tuple[torch.Generator, Tensor]] = []

    def leave_shared_stream(_: nn.Module, __: Any, output: Tensor) -> None:
        if not layer.training:
            return
        seed = derive(int(torch.randint(_SEED_LIMIT, ()).item()), "tensor", rank)
        device = output.device
        generator = torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[device.index]
        shared_states.append((generator, generator.get_state()))
        generator.manual_seed(seed)

    def return_to_shared_stream(_: nn.Module, __: Any, ___: Tensor) -> None:
        if shared_states:
            generator, state = shared_states.pop()
            generator.set_state(state)

    layer.qkv.register_forward_hook(leave_shared_stream)
    until.register_forward_hook(return_to_shared_stream)
