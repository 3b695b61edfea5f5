"""Write the run's final model, weights.safetensors in its folder, after the clock has stopped."""

from bertbench.common.errors import CheckpointError
from bertbench.common.paths import data_folder, shown_path, weights_file
from bertbench.config import System
from bertbench.data.store.manifest import Manifest
from bertbench.distributed.world import World
from bertbench.results.files import ResultFiles
from bertbench.training.trainer import Trainer


def write_final_weights(
    system: System, world: World, trainer: Trainer, files: ResultFiles | None, seed: int, samples: int
) -> str:
    """Gather the model on rank 0, after `samples` samples, and write it there. Collective.

    Returns a line for the user on rank 0, "" on the others. If writing fails, the run's result still stands.
    """
    world.watchdog.at("writing the final weights")
    source, line = f"{system.name}, seed {seed}, after {samples:,} samples", ""
    with trainer.evaluating():  # what reached the target
        model = trainer.whole()
        if files and model is not None:
            from bertbench.checkpoint.weights_file import write_weights  # noqa: PLC0415 - of runs that keep their weights

            try:
                entries = _vocabulary_entries(system)
                write_weights(files.weights, model.state_dict(), system.model.shape(), entries, source)
                line = f"wrote {shown_path(files.weights)}"
            except CheckpointError as error:
                line = f"warning: {error}; the run's result stands without its weights"
    world.barrier()  # a rank that exits stops its heartbeat, and rank 0 would report it lost
    return line


def _vocabulary_entries(system: System) -> int:
    """Return the number of rows with tokens: the checkpoint's if the model started from one, else the data's."""
    if system.model.checkpoint is not None:
        from bertbench.checkpoint.start import check_weights  # noqa: PLC0415 - of runs that start from weights

        return check_weights(system, weights_file(system.model.checkpoint)).real_vocab_size
    return Manifest.read(data_folder(system.data.path)).tokenizer.vocab_size
