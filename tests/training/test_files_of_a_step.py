"""The number of our files in one step of the demo, from reading the samples to the updated weights."""

import sys
import threading
from pathlib import Path
from types import FrameType

import bertbench
from bertbench.config import System, load_system
from bertbench.distributed.world import World
from bertbench.loading.filler import fill_of
from tests.ranks import run_ranks
from tests.training.steps import loaded, whole_trainer

MOST = 35  # one idea a file, but not one function: about thirty is what a reader can follow
STARTS, STEPS = 3, 7  # the loader is two steps ahead of the first that count


def entered(world: World, system: System) -> list[str]:
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    with whole_trainer(system, world) as trainer:
        threading.setprofile(note)  # before the loader starts its thread
        sys.setprofile(note)
        for number, step in enumerate(loaded(world, system, STEPS, fill=fill_of(system))):
            if number == STARTS:
                files.clear()
            trainer.step(number, step.parts)
        sys.setprofile(None)
        threading.setprofile(None)
    (package,) = bertbench.__path__
    return sorted(str(Path(file).relative_to(package)) for file in files if file.startswith(package))


def test_a_step_of_the_demo_enters_about_thirty_files(tiny_folder: Path) -> None:
    small = ("data.global_batch_size=12", f"schedule.max_steps={STEPS}", "schedule.warmup_steps=0")
    demo = load_system("cpu_demo", [f"data.path={tiny_folder}", "precision.compute=bf16", *small])
    for files in run_ranks(2, entered, demo):
        assert {"data/store/dataset.py", "balance/plan.py", "optim/muon.py"} < set(files)
        assert len(files) <= MOST, " ".join(files)
