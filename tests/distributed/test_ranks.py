"""Which processes are ranks, and which machines are nodes of a run: torchrun's variables say it, and nothing else."""

import pytest

from bertbench.common.errors import ConfigError, RunError
from bertbench.distributed.ranks import Node, Ranks, launched_node, launched_ranks

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
SHELL = {  # what Slurm sets in the shell of `srun --pty bash`, and some images for every process
    "SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "bash", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_NODEID": "0",
    "RANK": "0", "WORLD_SIZE": "1",
}  # fmt: skip
NODE = {"PET_NNODES": "3", "PET_NODE_RANK": "2", "PET_MASTER_ADDR": "node01", "PET_MASTER_PORT": "29500"}


def test_torchruns_four_variables_make_a_rank() -> None:
    assert launched_ranks({**SHELL, **TORCHRUN}) == Ranks(rank=5, size=16, local_rank=1, local_size=4)
    assert launched_ranks({}) is None
    assert launched_ranks(SHELL) is None
    for name in TORCHRUN:  # a pod of Kubeflow, for example, has RANK and WORLD_SIZE without a place on the node
        assert launched_ranks({**TORCHRUN, name: ""}) is None


@pytest.mark.parametrize("change", ["RANK=16", "RANK=-1", "WORLD_SIZE=two", "LOCAL_RANK=4", "LOCAL_WORLD_SIZE=17"])
def test_a_wrong_variable_is_one_error(change: str) -> None:
    name, _, value = change.partition("=")
    with pytest.raises(RunError, match=name):
        launched_ranks({**TORCHRUN, name: value})


def test_torchruns_options_as_variables_say_which_node_this_is() -> None:
    assert launched_node(NODE) == Node(number=2, nodes=3, address="node01", port=29500)
    assert launched_node({}) is None
    assert launched_node({**NODE, "PET_NNODES": "1"}) is None


@pytest.mark.parametrize(
    "change", ["PET_NODE_RANK=3", "PET_NODE_RANK=", "PET_MASTER_ADDR=", "PET_MASTER_PORT=70000", "PET_NNODES=1:4"]
)
def test_a_wrong_node_is_one_error(change: str) -> None:
    name, _, value = change.partition("=")
    with pytest.raises(ConfigError, match=name):
        launched_node({**NODE, name: value})
