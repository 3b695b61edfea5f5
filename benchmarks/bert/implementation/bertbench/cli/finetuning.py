"""Commands about SQuAD: fine-tune and answer the development questions, and score predictions."""

import argparse
import json
import os
from typing import TYPE_CHECKING

from bertbench.cli.arguments import (
    SYSTEM_HELP,
    WEIGHTS_HELP,
    add_path,
    add_system_arguments,
    emit,
    passed_on,
    say,
    say_unread,
    seed,
    system_of,
)
from bertbench.common.errors import ConfigError, DataError
from bertbench.common.progress import Progress
from bertbench.distributed.ranks import Ranks, launched_ranks

if TYPE_CHECKING:
    from bertbench.config import System
    from bertbench.finetune.squad_inputs import Inputs

_TRAINING = ("system", "train", "vocab", "out")


def add_squad_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system, the questions, the weights and the folder to write, or the predictions to score."""
    from bertbench.finetune.squad_system import FINETUNE_SQUAD

    parser.epilog = (
        "The system file has task squad; its section `squad` has epochs and lengths, for example "
        "--set squad.epochs=3. docs/finetuning.md names the main output files."
    )
    add_path(parser, "--dev", "FILE", "questions to answer after every epoch, SQuAD 1.1 or 2.0", required=True)
    parser.add_argument("--system", help=f"{SYSTEM_HELP}; required without --score, like the next three options")
    add_path(parser, "--train", "FILE", "questions to train on, SQuAD 1.1 or 2.0")
    add_path(parser, "--vocab", "FILE", "the model's vocab.txt")
    add_path(parser, "--out", "DIR", "folder to make, or an empty one")
    add_path(
        parser, "--weights", "PATH",
        f"weights to start from: {WEIGHTS_HELP} (default: the system's model.checkpoint, else random weights)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=seed,
        help="random seed; the seed of a logged run repeats that run, bit for bit on a CPU (default: chosen at random)",
    )  # fmt: skip
    add_system_arguments(parser, FINETUNE_SQUAD)
    add_path(
        parser, "--score", "PREDICTIONS",
        "score these predictions for --dev, without training: a JSON object {question id: answer}, with \"\" for no "
        "answer; a question without a prediction counts as wrong",
    )  # fmt: skip
    parser.set_defaults(usage_error=parser.error)


def squad(arguments: argparse.Namespace) -> int:
    """Fine-tune on SQuAD and answer the development questions: 0 after all epochs, 1 or 2 on failure.

    Called directly, it starts the system's ranks. Started by torchrun, it is one of them.
    """
    if arguments.score is not None:
        return _score(arguments)
    missing = [f"--{name}" for name in _TRAINING if getattr(arguments, name) is None]
    if missing:
        arguments.usage_error(f"the following arguments are required: {', '.join(missing)}")
    from bertbench.finetune.squad_system import as_fine_tuned

    system = as_fine_tuned(system_of(arguments))
    from bertbench.finetune.output import reserve_folder
    from bertbench.launch.local import check_startable, run_once

    ranks = launched_ranks(os.environ)
    if ranks is not None:
        return _squad_rank(system, ranks, arguments)
    check_startable(system, elsewhere="fine-tuning runs on one; add --set hardware.number_of_nodes=1")
    _squad_inputs(system, arguments)  # report bad inputs once, not on every rank
    files = reserve_folder(arguments.out)
    say_unread(system, arguments.reads)
    words = passed_on(arguments, "system", "train", "dev", "vocab", "weights", "out", "seed")
    code = run_once(system, ["finetune", "squad", *words], files)
    if code == 0:
        content = json.loads(files.scores.read_text(encoding="utf-8"))
        emit(arguments, content, *_score_lines(content["scores"]), f"wrote {arguments.out}")
    return code


def _squad_rank(system: "System", ranks: "Ranks", arguments: argparse.Namespace) -> int:
    from bertbench.finetune.output import reserve_folder
    from bertbench.finetune.run import finetune
    from bertbench.launch.rank import agreed_seed, as_rank

    with as_rank(system, ranks) as world:
        inputs = _squad_inputs(system, arguments)
        run_seed = agreed_seed(world, arguments.seed)
        files = reserve_folder(arguments.out) if world.leads else None
        with Progress(enabled=world.leads) as progress:
            progress.message(f"{system.name}: ranks {world.size}, seed {run_seed}, log {files and files.log}")
            finetune(system, world, run_seed, inputs, files, progress)
    return 0


def _squad_inputs(system: "System", arguments: argparse.Namespace) -> "Inputs":
    from bertbench.finetune.squad_inputs import Inputs

    return Inputs.open(system, arguments.train, arguments.dev, arguments.vocab, arguments.weights)


def _score(arguments: argparse.Namespace) -> int:
    """Print exact match and F1 of predictions for SQuAD questions, in percent."""
    training = [f"--{name}" for name in (*_TRAINING, "weights", "seed") if getattr(arguments, name) is not None]
    if training or arguments.overrides:
        raise ConfigError(f"--score trains nothing; leave {', '.join(training or ['--set'])} out")
    from bertbench.common.json_object import read_as
    from bertbench.finetune.score import scores_by_group
    from bertbench.finetune.squad import read_squad, repeated_ids

    questions = read_squad(arguments.dev)
    remedy = 'give a JSON object {question id: answer}, with "" for no answer'
    predictions: dict[str, str] = read_as(arguments.score, dict[str, str], DataError, remedy)
    if warning := repeated_ids(arguments.dev, questions):
        say(warning)
    if missing := {question.id for question in questions} - predictions.keys():
        say(f"warning: {arguments.score}: no prediction for {len(missing):,} questions, which count as wrong")
    scores = scores_by_group(questions, predictions)
    emit(arguments, scores, *_score_lines(scores))
    return 0


def _score_lines(scores: dict[str, float]) -> list[str]:
    groups = {"": "", "HasAns_": "with an answer: ", "NoAns_": "without an answer: "}
    return [
        f"{name}exact {scores[f'{group}exact']:.2f} %, F1 {scores[f'{group}f1']:.2f} % of "
        f"{scores[f'{group}total']:,.0f} questions"
        for group, name in groups.items()
        if f"{group}total" in scores
    ]
