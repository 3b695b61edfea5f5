"""Fully sharded data parallelism: torch's FSDP2, which is ZeRO's third stage (Rajbhandari et al. 2020).

Every rank keeps its rows of every tensor, with their gradients and moments; a layer is gathered before it computes,
forward and backward, and its gradient leaves as a sum over the ranks.
"""

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from bertbench.parallel.stage import Stage


def shard(stage: Stage, mesh: DeviceMesh) -> None:
    """Keep this rank's rows of every tensor; all ranks of the mesh must call it."""
    for layer in stage.layers.values():
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    # the root too frees its weights: evaluation has no backward pass that would
    fully_shard(stage, mesh=mesh, reshard_after_forward=True)
    for module in stage.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # the loss is divided by the global batch already
            module.set_force_sum_reduction_for_comms(True)  # gloo supports only sums
