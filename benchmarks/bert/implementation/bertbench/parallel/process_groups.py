"""Make the process groups of a layout, which hold the ranks that sum, send or share."""

from collections.abc import Callable, Hashable

from torch import distributed
from torch.distributed.device_mesh import DeviceMesh

from bertbench.config.layout import Coordinate, Layout
from bertbench.distributed.world import World


class ProcessGroups:
    """This rank's place in a layout, and its groups. All ranks must create this object at the same time."""

    def __init__(self, layout: Layout, world: World, fully_shard: bool) -> None:
        self.layout = layout
        self.world = world
        self.place = layout.coordinate(world.rank)
        first_and_last_stage = (0, layout.pipeline - 1)
        self.tensor = self._group(lambda at: (at.pipeline, at.data))
        """Ranks that share every layer."""
        self.data = self._group(lambda at: (at.pipeline, at.tensor))
        """Ranks that hold the same part of the model and see different samples."""
        self.pipeline = self._group(lambda at: (at.data, at.tensor))
        """Ranks that hold the stages through which a sample passes."""
        self.tied = self._group(lambda at: (at.data, at.tensor, at.pipeline in first_and_last_stage))
        """The first and the last stage, which both hold the word embeddings; other stages don't use this group."""
        self.model = self._group(lambda at: "all" if fully_shard else at.data)
        """Ranks that together hold one copy of the model."""
        self.shards = self.model if fully_shard else self.tensor
        """Ranks that hold shards of the same tensors."""

    def mesh(self, name: str, group: distributed.ProcessGroup) -> DeviceMesh:
        """Return a group as a mesh for DTensor and FSDP2."""
        return DeviceMesh.from_group(group, self.world.device.type, mesh_dim_names=(name,))

    def _group(self, key: Callable[[Coordinate], Hashable]) -> distributed.ProcessGroup:
        """Make a group of the ranks that have this rank's key.

        Only those ranks wait for each other, because a thousand ranks make hundreds of groups. torch names such a group
        after its ranks and after the number of groups that this rank has made, so all ranks must make the same number.
        """
        my_key = key(self.place)
        ranks = [rank for rank in range(self.layout.ranks) if key(self.layout.coordinate(rank)) == my_key]
        return distributed.new_group(ranks, timeout=self.world.timeout, use_local_synchronization=True)
