"""Gather a split model on rank 0, for its final weights."""

from collections.abc import Mapping

import torch
from torch import distributed, nn

from bertbench.distributed.world import World
from bertbench.model.bert import Bert
from bertbench.model.logical_tensors import logical_weights, whole_tensor
from bertbench.model.shape import BertShape


def gathered_model(shape: BertShape, parameters: Mapping[str, nn.Parameter], world: World) -> Bert | None:
    """Return the model in rank 0's main memory, tensor by tensor from the ranks that hold it; None elsewhere.

    `parameters` are this rank's, by logical names. Collective.
    """
    with torch.device("meta"):
        model = Bert(shape)
    if world.leads:
        model = model.to_empty(device="cpu")
    held = world.from_all(set(parameters))
    # the same order on every rank, or ranks would wait for each other forever
    for name, gathered in logical_weights(model).items():
        world.watchdog.goes_on()
        whole = whole_tensor(parameters[name].detach()) if name in parameters else None
        holder = next(rank for rank, its in enumerate(held) if name in its)
        if world.leads:
            if whole is None:
                whole = torch.empty(gathered.shape, device=world.device)
                distributed.recv(whole, holder)
            gathered.copy_(whole)
        elif world.rank == holder and whole is not None:
            distributed.send(whole.contiguous(), 0)
    return model if world.leads else None
