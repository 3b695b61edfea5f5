"""Measure the accuracy of trained weights on the evaluation set, for `bertbench evaluate`."""

from pathlib import Path
from typing import NamedTuple

from bertbench.checkpoint.start import check_weights
from bertbench.config import System
from bertbench.distributed.ranks import Ranks
from bertbench.distributed.world import join
from bertbench.loading.inputs import open_split
from bertbench.model.arithmetic import set_arithmetic
from bertbench.model.bert import Bert
from bertbench.model.options import PrecisionName, unmeasured_precision, without_fp8
from bertbench.training.evaluator import Evaluator


class WeightsScore(NamedTuple):
    """The accuracy of weights."""

    accuracy: float
    samples: int
    """The number of evaluation samples; every one was scored."""
    data: Path
    precision: PrecisionName
    weights: Path
    source: str
    """The program or run that produced the weights."""


def score_weights(system: System, path: Path, ranks: Ranks | None) -> WeightsScore:
    """Return the accuracy of the weights at `path` on every rank; the samples are divided among `ranks`.

    Raises DataError, CheckpointError or ConfigError if data or weights can't be read or don't fit the system.
    """
    samples = open_split(system, "eval")
    weights = check_weights(system, path)
    model = Bert(system.model.shape())
    weights.put_into(model)
    # measuring which number format and which compile mode is faster would take longer than one evaluation; fp8's scales
    # belong to a run, not to the weights
    precision = without_fp8(unmeasured_precision(system.precision.compute))
    with join(system.launch.device, system.launch.timeout_s, ranks=ranks) as world:
        model.to(world.device)
        set_arithmetic(model, world.device, precision, "none")
        accuracy = Evaluator(samples, system.evaluation.batch_size, world).accuracy(model, precision)
    return WeightsScore(accuracy, len(samples), samples.folder, precision, weights.path, weights.source)
