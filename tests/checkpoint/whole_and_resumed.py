"""Take all steps of a run, and its last steps again, resumed from a snapshot: losses and weights of both."""

from collections.abc import Sequence
from pathlib import Path

from torch.nn.utils import parameters_to_vector

from bertbench.checkpoint.snapshot_folder import step_folder
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.model.logical_tensors import local
from bertbench.runs.files import ResultFiles
from bertbench.training.technique import EVERY_STEP, Technique
from bertbench.training.trainer import Trainer
from tests.relay import take_steps

STEPS, TAKEN = 7, 4
DROPOUT = "model.hidden_dropout=0.1"  # so that random states matter
EVERY = f"checkpoint.every_steps={TAKEN}"

Ended = tuple[list[float], list[float]]
"""Losses by step, and all weights: training's, and those that evaluations read."""


def whole_and_resumed(
    world: World, systems: list[System], folder: Path, techniques: Sequence[Technique] = ()
) -> list[tuple[Ended, Ended]]:
    """For each system, take all steps, with a snapshot on the way, and the last steps again, resumed from it."""
    answers = []
    for number, system in enumerate(systems):
        log = folder / f"result_{number}.txt"
        technique = techniques[number] if techniques else EVERY_STEP
        all_steps = trained(world, system, log, technique=technique)
        answers.append((all_steps, trained(world, system, log, goes_on=True, technique=technique)))
    return answers


def trained(world: World, system: System, log: Path, goes_on: bool = False, technique: Technique = EVERY_STEP) -> Ended:
    before = step_folder(ResultFiles(log).snapshots, TAKEN) if goes_on else None
    steps = range(TAKEN if goes_on else 0, STEPS)
    trainer, losses, _ = take_steps(world, system, log, steps, before, held, technique)
    weights = held(trainer)
    with trainer.evaluating():
        weights += held(trainer)
    trainer.close()
    return losses, weights


def held(trainer: Trainer) -> list[float]:
    return parameters_to_vector([local(parameter) for parameter in trainer.model.parameters()]).tolist()
