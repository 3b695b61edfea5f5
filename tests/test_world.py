import pytest

from bertbench.errors import RunError
from bertbench.world import Ranks, launched_ranks

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
SLURM = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "16",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS_PER_NODE": "4",
}


@pytest.mark.parametrize("environment", [TORCHRUN, SLURM])
def test_a_launcher_s_variables_say_which_rank_this_is(environment: dict[str, str]) -> None:
    assert launched_ranks(environment) == Ranks(rank=5, size=16, local_rank=1, local_size=4)


def test_without_a_launcher_a_process_is_no_rank() -> None:
    assert launched_ranks({}) is None
    assert launched_ranks({"SLURM_PROCID": "0"}) is None  # a batch script, not a task of srun


@pytest.mark.parametrize(("name", "value"), [("LOCAL_RANK", None), ("WORLD_SIZE", "many")])
def test_a_missing_or_wrong_variable_is_one_error(name: str, value: str | None) -> None:
    environment = {key: text for key, text in TORCHRUN.items() if key != name} | ({name: value} if value else {})
    with pytest.raises(RunError, match=name):
        launched_ranks(environment)
