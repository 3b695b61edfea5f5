"""Open a run's data before its clock starts: read only metadata, and check that it fits the model and the division."""

import os
import shlex
from pathlib import Path

from bertbench.common.errors import ConfigError, DataError
from bertbench.common.paths import data_path
from bertbench.common.system_faults import exists
from bertbench.config import System
from bertbench.config.closed import EVALUATION_SAMPLES, MAX_PREDICTIONS
from bertbench.data.store.dataset import Dataset
from bertbench.data.store.manifest import Manifest, SplitName
from bertbench.data.store.mapped_file import most_mapped_files


def open_data(system: System) -> tuple[Dataset, Dataset]:
    """Open the training and the evaluation split: metadata only, off the clock.

    Raises DataError if data is damaged or missing (the message names all that is missing), and ConfigError if it
    doesn't fit the model.
    """
    if missing := _missing_datasets(system):
        raise DataError("\n".join(missing))
    training, evaluation = open_split(system, "train"), open_split(system, "eval")
    if Manifest.read(training.folder).tokenizer != Manifest.read(evaluation.folder).tokenizer:
        raise DataError(
            f"{training.folder} and {evaluation.folder} use different vocabularies; prepare both with the same --vocab"
        )
    if system.hardware.division == "closed":
        _require_closed_data(training, evaluation)
    _require_mappable(training, evaluation)
    return training, evaluation


def _require_mappable(training: Dataset, evaluation: Dataset) -> None:
    """Raise DataError if a rank, which maps every shard that it reads, couldn't map them all on this machine."""
    shards = len(training.split.shards) + len(evaluation.split.shards)
    most = most_mapped_files()
    if most is not None and shards > most:
        raise DataError(
            f"{training.folder}: found {shards:,} shards, evaluation included, but a rank can map only {most:,} here "
            "(vm.max_map_count); write fewer with `bertbench data shuffle --shards`, or raise vm.max_map_count"
        )


def _require_closed_data(training: Dataset, evaluation: Dataset) -> None:
    """Raise ConfigError if the data's manifests contradict the closed division's rules."""
    remedy = "use MLPerf's data (docs/data.md), or set hardware.division to open"
    if len(evaluation) != EVALUATION_SAMPLES:
        raise ConfigError(
            f"{evaluation.folder}: found {len(evaluation):,} evaluation samples, but the closed division expects "
            f"{EVALUATION_SAMPLES:,} (rule closed-evaluation-set); {remedy}"
        )
    predicted = max_predictions(Manifest.read(training.folder))
    if predicted not in (None, MAX_PREDICTIONS):
        raise ConfigError(
            f"{training.folder}: found up to {predicted} predictions in a sample, but the closed division expects "
            f"{MAX_PREDICTIONS} (rule closed-predictions); {remedy}"
        )


def missing_inputs(system: System) -> list[str]:
    """Return the datasets and the weights that a run needs but lacks, each with the commands that make it.

    TEXT and INPUT in a command are MLCommons' downloaded folders (docs/data.md).
    """
    problems = _missing_datasets(system)
    if system.model.checkpoint is not None and not (path := data_path(system.model.checkpoint)).exists():
        problems.append(
            f"{path}: found no weights; make them from MLCommons' checkpoint (docs/data.md) with `bertbench "
            "checkpoint import --from-tf INPUT/tf1_ckpt/model.ckpt-28252 --config INPUT/bert_config.json --out "
            f"{shlex.quote(str(path))}`, or set DATADIR"
        )
    return problems


def _missing_datasets(system: System) -> list[str]:
    folders = {_folder(system, name): _making(system, name) for name in ("train", "eval")}
    return [_no_dataset(folder, making) for folder, making in folders.items() if not exists(folder, DataError)]


def _folder(system: System, name: SplitName) -> Path:
    """Return the folder of one split."""
    evaluation = name == "eval" and system.data.eval_path
    return data_path(evaluation or system.data.path)


def _making(system: System, name: SplitName) -> str:
    """Return the commands that make a dataset: by the system's recipe, or else from MLCommons' files."""
    if system.data.recipe is not None:
        return f"make it with `bertbench data prepare --system {shlex.quote(system.argument)}`"
    folder = str(_folder(system, name))
    prepare = "bertbench data prepare --recipe mlperf --vocab INPUT/vocab.txt --text TEXT"
    made, in_order = shlex.quote(folder), shlex.quote(f"{folder}_in_order")
    if name == "eval" and system.data.eval_path is not None:
        commands = f"`{prepare}/eval.txt --select-eval 10000 --out {made}`"
    else:
        shuffle = f"bertbench data shuffle {in_order} --seed 1 --shards 4320 --out {made}"
        commands = f"`{prepare}/part-*-of-00500 --out {in_order}`, then `{shuffle}`"
    return f"make it from MLCommons' text (docs/data.md) with {commands}"


def _no_dataset(folder: Path, making: str) -> str:
    base = os.environ.get("DATADIR")
    if base and not Path(base).exists():
        return f"{folder}: found no dataset, because DATADIR names {base}, which isn't there; mount that, or {making}"
    return f"{folder}: found no dataset; {making}, or set DATADIR"


def open_split(system: System, name: SplitName) -> Dataset:
    """Open one split of the system's data; raises the errors of `open_data`."""
    folder = _folder(system, name)
    if not exists(folder, DataError):
        raise DataError(_no_dataset(folder, _making(system, name)))
    entries = Manifest.read(folder).tokenizer.vocab_size
    if entries > system.model.vocab_size:
        raise ConfigError(
            f"{folder}: the vocabulary has {entries:,} entries, but model.vocab_size is {system.model.vocab_size:,}; "
            f"raise model.vocab_size to at least {entries:,}"
        )
    if folder == data_path(system.data.path):
        check_recipe(system, folder)
    split = Dataset.open(folder, name)
    if split.split.longest > system.model.max_positions:
        raise ConfigError(
            f"{folder}: the longest {name} sample has {split.split.longest} tokens, but model.max_positions is "
            f"{system.model.max_positions}; raise it to at least {split.split.longest}"
        )
    return split


def check_recipe(system: System, folder: Path) -> None:
    """Raise ConfigError if data.recipe, given by hand, differs from the recipe that made the dataset in `folder`."""
    options = {origin for setting, origin in system.given.items() if setting.startswith("data.recipe.")}
    if options and (differs := recipe_differences(system, folder)):
        raise ConfigError(
            f"{', '.join(sorted(options))}: {folder} was made by another recipe ({'; '.join(differs)}); "
            "prepare a dataset by that recipe (`bertbench data prepare`) and set data.path to it, or leave it out"
        )


def recipe_differences(system: System, folder: Path) -> list[str]:
    """Return where the system's data.recipe differs from the recipe that made the dataset, a line for each setting."""
    if system.data.recipe is None:
        return []
    recorded = Manifest.read(folder).request.get("recipe", {})
    if "held_out_fraction" not in recorded:
        return ["its samples weren't made by a data.recipe"]
    made = {**recorded, **recorded.get("options", {})}
    asked = system.data.recipe.model_dump()
    return [
        f"{name} {made[name]}, not {value}" for name, value in asked.items() if name in made and made[name] != value
    ]


def max_predictions(manifest: Manifest) -> int | None:
    """Return the largest number of predicted tokens in a sample; None if the samples came from elsewhere."""
    recipe = manifest.request.get("recipe", {})
    if recipe.get("name") == "mlperf":
        return MAX_PREDICTIONS
    predictions = recipe.get("options", {}).get("max_predictions_per_seq")
    return None if predictions is None else int(predictions)
