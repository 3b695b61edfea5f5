"""A run measures the arithmetic that the system file leaves open; all ranks take one choice, which is kept."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.machine.choose_arithmetic import choose, choose_arithmetic
from bertbench.model.linear import onednn_multiplies
from bertbench.model.loops import library
from bertbench.runs.files import ResultFiles
from tests.conftest import Tiny
from tests.ranks import run_ranks

CPU = torch.device("cpu")
WIDE = ("model.hidden_size=256", "model.attention_heads=4", "model.layers=1", "launch.ranks_per_node=1")


def _same(tensor: Tensor) -> Tensor:
    return tensor


def test_a_format_that_the_file_fixes_is_not_measured(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertbench.machine.choose_arithmetic.fastest_products", None)
    monkeypatch.setattr("bertbench.machine.choose_arithmetic.EncoderLayer", None)  # whose passes would be timed
    chosen = choose(tiny("precision.compute=bf16", "compute.products=onednn", *WIDE), CPU, _same)
    assert (chosen.precision, chosen.source) == ("bf16", "set by the system file")
    assert {library for _, products in chosen.products for library in products} == (
        {"onednn"} if onednn_multiplies(torch.bfloat16) else set()
    )
    assert choose(tiny("compute.products=torch", *WIDE), CPU, _same).products == ()


@pytest.mark.parametrize(("seconds", "precision"), [([3.0, 1.0], "bf16"), ([3.0, 2.9], "fp32"), ([1.0, 9.0], "fp32")])
def test_bf16_is_chosen_if_all_ranks_together_are_clearly_faster(
    tiny: Tiny, seconds: list[float], precision: str
) -> None:
    """Let the seconds of other ranks, which are added to this one's, decide."""
    others = torch.tensor(seconds, dtype=torch.float64) * 1e6
    chosen = choose(tiny("precision.compute=auto", "launch.ranks_per_node=1"), CPU, lambda mine: mine + others)
    assert (chosen.precision, chosen.source) == (precision, "measured")


def test_a_choice_is_kept_for_the_next_run_and_measured_again_if_it_can_t_be_read(tiny: Tiny, tmp_path: Path) -> None:
    cache = tmp_path / "bertbench" / "arithmetic.json"
    system = tiny("precision.compute=auto")
    first, second = run_ranks(2, settled, system, tmp_path)
    assert first == second, "ranks agree"
    assert first[1:] == ("measured", first[0])
    ((key, kept),) = json.loads(cache.read_text()).items()
    other = {"fp32": "bf16", "bf16": "fp32"}[kept["precision"]]
    cache.write_text(json.dumps({key: kept | {"precision": other}}))
    assert run_ranks(2, settled, system, tmp_path) == [(other, "cached measurement", other)] * 2
    cache.write_text(json.dumps({key: kept}))
    resumed = run_ranks(2, settled, system, tmp_path, True)
    assert resumed == [(other, "recorded when the run began", other)] * 2
    cache.write_text(json.dumps({key: {"precision": other}}))  # as an older version may have written it
    assert run_ranks(2, settled, system, tmp_path)[0][1] == "measured"
    cache.write_text("half a fi")
    assert run_ranks(2, settled, system, tmp_path)[0][1] == "measured"


def test_a_choice_belongs_to_a_processor_s_name_and_instructions(tiny: Tiny, tmp_path: Path) -> None:
    # an AMD EPYC of 2021 and one of 2024 have one name and may share a home folder
    system = tiny("precision.compute=auto", "launch.ranks_per_node=1")
    processors = ("AVX2", "AVX-512", "AVX2")
    assert run_ranks(1, sources_on, system, tmp_path, processors) == [["measured", "measured", "cached measurement"]]


def test_a_split_model_s_choice_isn_t_that_of_a_whole_one(tiny: Tiny, tmp_path: Path) -> None:
    for layout in ("parallel.fully_shard=true", "parallel.fully_shard=false"):  # only the latter chooses libraries
        assert run_ranks(2, settled, tiny("precision.compute=auto", layout), tmp_path)[0][1] == "measured"


def sources_on(world: World, system: System, folder: Path, processors: tuple[str, ...]) -> list[str]:
    """The source of a choice on each of these processors, named by their instructions, of one home folder."""
    library()  # compiled, for the folder that follows has none
    os.environ["XDG_CACHE_HOME"] = str(folder)
    sources = []
    for instructions in processors:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bertbench.machine.choose_arithmetic.instructions", lambda name=instructions: name)
            sources.append(choose_arithmetic(system, world, None).source)
    return sources


def settled(world: World, system: System, folder: Path, resumed: bool = False) -> tuple[str, str, str]:
    """The precision chosen, its source, and the precision that was written beside the log."""
    library()  # compiled, for the folder that follows has none
    os.environ["XDG_CACHE_HOME"] = str(folder)
    files = ResultFiles(folder / "result_0.txt")
    files.folder.mkdir(exist_ok=True)
    arithmetic = choose_arithmetic(system, world, files.arithmetic if world.leads and resumed else None)
    if world.leads:
        files.write("arithmetic.json", arithmetic.record())
    world.barrier()
    return arithmetic.precision, arithmetic.source, json.loads(files.arithmetic.read_text())["precision"]
