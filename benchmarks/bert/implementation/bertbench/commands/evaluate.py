"""`bertbench evaluate SYSTEM|RUN`: measure the accuracy of trained weights on the evaluation set.

Called directly it is one process; started by torchrun or Slurm, ranks share the samples.
"""

import argparse
from pathlib import Path

from bertbench.checkpoint.start import check_weights, one_checkpoint
from bertbench.commands import emit, say_unread, system_of
from bertbench.commands.arguments import EXPECTATION
from bertbench.common.errors import ConfigError
from bertbench.common.paths import weights_file
from bertbench.config import System
from bertbench.config.closed import EVALUATION_SAMPLES
from bertbench.config.load import RUN_CONFIG
from bertbench.distributed.world import join
from bertbench.launch.rank import ranks_of
from bertbench.loading.inputs import open_split
from bertbench.model.arithmetic import set_arithmetic
from bertbench.model.bert import Bert
from bertbench.model.options import unmeasured_precision
from bertbench.training.evaluator import Evaluator


def run(arguments: argparse.Namespace) -> int:
    """Print the accuracy, on rank 0."""
    system = system_of(arguments)
    path = _path(system, arguments.checkpoint)
    samples = open_split(system, "eval")
    weights = check_weights(system, path)
    model = Bert(system.model.shape())
    weights.put_into(model)
    with join(system.launch.device, system.launch.timeout_s, ranks=ranks_of(system)) as world:
        if world.leads:
            say_unread(system, arguments)
        model.to(world.device)
        precision = unmeasured_precision(system.precision.compute)
        set_arithmetic(model, world.device, precision, "none")  # compiling would take longer than one evaluation
        evaluator = Evaluator(samples, system.evaluation.batch_size, world)
        accuracy = evaluator.accuracy(model, precision)
        if not world.leads:
            return 0
    answer = {
        "checkpoint": str(path),
        "source": weights.source,
        "data": str(samples.folder),
        "samples": len(samples),
        "precision": precision,
        "accuracy": accuracy,
        "expectation": EXPECTATION,
    }
    hint = f"\n{EXPECTATION}" if len(samples) == EVALUATION_SAMPLES else ""
    emit(
        arguments.json,
        answer,
        f"accuracy {accuracy:.5f} in {precision} on {len(samples):,} evaluation samples of {samples.folder}\n"
        f"weights {weights.path}, from {weights.source}{hint}",
    )
    return 0


def _path(system: System, given: Path | None) -> Path:
    if given is not None:
        one_checkpoint(system, "--checkpoint", given)
        return given
    if (config := Path(system.argument)).name == RUN_CONFIG:
        return config.parent
    if system.model.checkpoint is None:
        raise ConfigError(f"{system.name}: has no model.checkpoint; name a weights file with --checkpoint, or a run")
    return weights_file(system.model.checkpoint)
