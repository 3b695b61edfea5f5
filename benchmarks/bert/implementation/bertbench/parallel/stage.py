"""Define one stage of BERT: some of its layers, on the first stage also the embeddings, on the last also the heads.

The heads are those of pre-training. The stage of another task overrides the four methods that know the heads
(`take_heads`, `words`, `evaluated`, `loss`). Parameters keep their names, so that a state can move between layouts.
Query, key and value are three matrices here, so that each can be split. A stage can be fully sharded over ranks, and
all stages can be gathered on rank 0.
Shapes: as in model/bert.py; T is the same in all microbatches of a pipeline.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh

from bertbench.distributed.world import World
from bertbench.loading.batch import Batch
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.model.arithmetic import computing
from bertbench.model.bert import Bert, ReadStates, WithHeads
from bertbench.model.compiled import compile_part
from bertbench.model.encoder import EncoderLayer
from bertbench.model.logical_tensors import logical_weights, whole_tensor
from bertbench.model.options import PrecisionName


def modules_of_stages(numbers: Iterable[int], stages: int, layers: int, heads: Sequence[str]) -> list[str]:
    """Return which modules of a whole model the stages in `numbers` of its `stages` hold; the last holds `heads`."""
    modules = []
    layers_of_a_stage = layers // stages
    for number in numbers:
        if number == 0:
            modules.append("embeddings")
        first_layer = number * layers_of_a_stage
        modules += [f"layers.{layer}" for layer in range(first_layer, first_layer + layers_of_a_stage)]
        if number == stages - 1:
            modules += heads
    return modules


class Projection(nn.ModuleList):
    """Query, key and value of a layer, side by side, as one fused matrix would compute them."""

    def __init__(self, qkv: nn.Linear) -> None:
        super().__init__()
        for weight, bias in zip(qkv.weight.detach().chunk(3), qkv.bias.detach().chunk(3), strict=True):
            part = nn.Linear(qkv.in_features, len(weight), device="meta")
            part.weight = nn.Parameter(weight.clone())
            part.bias = nn.Parameter(bias.clone())
            self.append(part)

    def forward(self, hidden_TD: Tensor) -> Tensor:
        """Return query, key and value of all heads, or of this rank's heads: [T, D] in, [T, 3 D] out."""
        return torch.cat([part(hidden_TD) for part in self], dim=-1)


class Stage(WithHeads):
    """Stage `number` of `stages`. It takes its modules out of `model`, which is incomplete afterwards."""

    def __init__(self, model: Bert, number: int, stages: int, precision: PrecisionName) -> None:
        super().__init__()
        self.is_first = number == 0
        self.is_last = number == stages - 1
        self.microbatches: Sequence[LoadedPart] = ()
        """The microbatches of the current step; `place` is the index."""
        self._precision = precision
        layers_of_a_stage = len(model.layers) // stages
        first_layer = number * layers_of_a_stage
        layer_numbers = range(first_layer, first_layer + layers_of_a_stage)
        self.layers = nn.ModuleDict({str(layer): model.layers[layer] for layer in layer_numbers})
        for layer in self.encoder_layers():
            layer.qkv = Projection(layer.qkv)  # type: ignore[assignment]
        if self.is_first:
            self.embeddings: nn.Module = model.embeddings
        if self.is_last:
            self.take_heads(model)

    def take_heads(self, model: Bert) -> None:
        """Take the heads, and the word embeddings that they read, out of a model for its last stage."""
        if not self.is_first:
            self.embeddings = nn.ModuleDict({"word": model.embeddings.word})
        self.masked_lm = model.masked_lm
        self.pooler = model.pooler
        self.next_sentence = model.next_sentence

    def fuse(self) -> None:
        """Compile everything except attention and the gathering and splitting of weights.

        Tensor-parallel layers can't be compiled: they work by hooks of modules on sharded tensors, and compiled code
        doesn't call hooks.
        """
        pieces: list[nn.Module] = []
        if self.is_first:
            pieces.append(self.embeddings)
        if self.is_last:
            pieces += [self.masked_lm, self.pooler, self.next_sentence]
        self.sum_pair_losses = compile_part(pieces, self.encoder_layers())

    def ends(self) -> list[nn.Module]:
        """Return what this stage has in addition to layers: embeddings, heads, both or neither."""
        return [module for module in self.children() if module is not self.layers]

    def encoder_layers(self) -> list[EncoderLayer]:
        """Return this stage's layers, first to last."""
        return [layer for layer in self.layers.values() if isinstance(layer, EncoderLayer)]

    @property
    def words(self) -> nn.Parameter | None:
        """The word embeddings, which the first and the last stage hold."""
        return self.get_parameter("embeddings.word.weight") if self.is_first or self.is_last else None

    def forward(self, received: Tensor, place: Tensor) -> Tensor:
        """Compute microbatch number `place` [1] from the previous stage's hidden states: [T, D] in and out.

        The first stage ignores `received`. The last stage returns the loss [1], or in evaluation mode the predicted ids
        of the masked tokens [M].
        """
        part, batch = self.microbatches[int(place)]
        with computing(self._precision, batch.tokens_T.device):
            hidden_TD = received
            if self.is_first:
                hidden_TD = self.embeddings(batch.tokens_T, batch.segments_T, batch.positions_T)
            for layer in self.layers.values():
                hidden_TD = layer(hidden_TD, batch.sequences)
            if not self.is_last:
                return hidden_TD.to(wire_format(self._precision))
            if not self.training:
                return self.evaluated(hidden_TD, batch)
            loss = self.loss(hidden_TD, part, batch)
        # not a view, because FSDP2 and the pipeline change their inputs in place
        return torch.stack((loss,))

    def evaluated(self, hidden_TD: Tensor, batch: Batch) -> Tensor:
        """Return what an evaluation reads, given the last layer's output: the ids predicted for masked tokens, [M]."""
        assert self.words is not None
        return self.masked_lm.predictions(hidden_TD[batch.masked_at_M], self.words)

    def loss(self, hidden_TD: Tensor, part: Part, batch: Batch) -> Tensor:
        """Return the weighted loss of a part, given the last layer's output."""
        assert self.words is not None
        first_at_S = batch.sequences.cu_seqlens_S1[: len(batch.next_sentence_S)]
        read = ReadStates(hidden_TD[batch.masked_at_M], hidden_TD[first_at_S], self.words)
        return self.head_losses(read, batch.labels).weighted(part.masked_lm_weight, part.next_sentence_weight)


def wire_format(precision: str) -> torch.dtype:
    """Return the dtype in which stages send hidden states."""
    return torch.bfloat16 if precision == "bf16" else torch.float32


def logical_name(name: str) -> str:
    """Return the name of a stage's parameter in a state for any layout: `qkv.weight.0` for `qkv.0.weight`."""
    *path, number, kind = name.split(".")
    return ".".join((*path, kind, number)) if number.isdecimal() else name


def fully_shard_stage(stage: Stage, mesh: DeviceMesh) -> None:
    """Keep only this rank's rows of every tensor, of its gradient and of its moments. Collective over the mesh.

    This uses torch's FSDP2, which is ZeRO's third stage (Rajbhandari et al. 2020). A layer is gathered before its
    forward pass and before its backward pass, and its gradient is summed over the ranks by a reduce-scatter.
    """
    from torch.distributed.fsdp import FSDPModule, fully_shard  # noqa: PLC0415 - for few layouts

    for layer in stage.layers.values():
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    # the root module also frees its weights, because evaluation has no backward pass that would free them
    fully_shard(stage, mesh=mesh, reshard_after_forward=True)
    for module in stage.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # the loss is already divided by the global batch
            module.set_force_sum_reduction_for_comms(True)  # gloo supports only sums


def gather_stages(model: Bert, parameters: Mapping[str, nn.Parameter], world: World) -> None:
    """Fill the whole model on rank 0, in its main memory, tensor by tensor from the ranks that hold them. Collective.

    `parameters` holds this rank's parameters by logical name. Tensors that no rank holds, such as heads that aren't
    trained, don't change.
    """
    names_by_rank = world.from_all(set(parameters))
    held = set().union(*names_by_rank)
    # every rank needs the same order, or ranks would wait for each other forever
    for name, gathered in logical_weights(model).items():
        if name not in held:
            continue
        world.watchdog.goes_on()
        tensor = whole_tensor(parameters[name].detach()) if name in parameters else None
        holder = next(rank for rank, names in enumerate(names_by_rank) if name in names)
        if world.leads:
            if tensor is None:
                tensor = torch.empty(gathered.shape, device=world.device)
                distributed.recv(tensor, holder)
            gathered.copy_(tensor)
        elif world.rank == holder and tensor is not None:
            distributed.send(tensor.contiguous(), 0)
