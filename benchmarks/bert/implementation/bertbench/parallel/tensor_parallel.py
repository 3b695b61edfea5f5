"""Split layers by tensor parallelism: the ranks of a node share the heads and feed-forward columns of every layer.

Query, key, value and the first feed-forward matrix are split by rows (their outputs). The attention output matrix and
the second feed-forward matrix are split by columns (their inputs). A layer then needs two all-reduces in the forward
pass and two in the backward pass (Shoeybi et al. 2019, arXiv 1909.08053). The rows of the vocabulary are split too
(split_vocabulary.py). LayerNorms, position and segment embeddings, and the rest of the heads stay whole on every rank.

Hidden states are the same on all ranks of a group, so their dropout must be the same: the ranks share a random stream.
Attention probabilities belong to each rank's own heads, so for them each rank draws from its own stream.

Sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2) splits the parts that ranks would
otherwise repeat: between the products of a layer, each rank keeps an equal share of the tokens. A gather before the
first product and a reduce-scatter after the second replace the all-reduce and send as many bytes. The embeddings'
LayerNorm and the heads still compute all tokens on every rank.
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
    """Keep only this rank's share of every layer of a stage; with `sequence`, also of the tokens between products.

    Layers move to the mesh's device one by one, so that the device never holds more than one whole layer. With
    `sequence`, the tokens of every microbatch must be a multiple of the number of ranks. Collective over the mesh.
    """
    between = Shard(0) if sequence else Replicate()
    for layer in stage.encoder_layers():
        plan = {
            # one gather for all three, so that their gradients are summed before they are sent
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
    """Return the layers' LayerNorm parameters: with `sequence`, a rank has their gradient for its own tokens only."""
    return [
        parameter
        for layer in stage.encoder_layers()
        for norm in (layer.attention_norm, layer.feed_forward_norm)
        for parameter in norm.parameters()
    ]


def _share_tokens(stage: Stage, mesh: DeviceMesh) -> None:
    """Give each rank its share of the embedded tokens, and give the heads the tokens of all ranks."""
    plan: dict[str, ParallelStyle] = {}
    if stage.is_first:
        plan["embeddings"] = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0))
    if stage.is_last:
        last = f"layers.{list(stage.layers)[-1]}"
        plan[last] = PrepareModuleOutput(output_layouts=Shard(0), desired_output_layouts=Replicate())
    parallelize_module(stage, mesh, plan)


def _own_stream(layer: EncoderLayer, rank: int, until: nn.Module) -> None:
    """Draw dropout from a random stream of this rank's own, after the first projection up to and including `until`.

    The stream's seed comes from the shared stream. Recomputation restores the shared stream and thus repeats the draws.
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
