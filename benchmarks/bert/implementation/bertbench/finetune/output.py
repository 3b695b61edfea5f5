"""Write the folder of a fine-tuning run: log, predictions, scores and weights."""

import json
from collections.abc import Mapping
from pathlib import Path

from bertbench.checkpoint.safetensors_files import writing
from bertbench.checkpoint.weights_file import write_weights
from bertbench.common.errors import ConfigError
from bertbench.common.paths import FINETUNING_LOG
from bertbench.common.system_faults import unwritable
from bertbench.finetune.answers import Prediction
from bertbench.finetune.squad_inputs import Inputs
from bertbench.model.bert import Bert
from bertbench.runs.files import ResultFiles


class FinetuneFiles(ResultFiles):
    """The log of a fine-tuning run, and the other files in the folder of `--out`."""

    def __init__(self, out: Path) -> None:
        super().__init__(out / FINETUNING_LOG)
        self.scores = out / "scores.json"  # the inputs, and the scores of every epoch

    def write_predictions(self, predictions: Mapping[str, Prediction], scores: Mapping[str, object]) -> None:
        """Write predictions in the form of SQuAD's evaluation, n-best answers, null odds and scores.

        Each file is written completely or not at all. Raises CheckpointError if one can't be written.
        """
        contents = {
            self.folder / "predictions.json": {name: prediction.text for name, prediction in predictions.items()},
            self.folder / "nbest_predictions.json": {
                name: prediction.n_best for name, prediction in predictions.items()
            },
            self.folder / "null_odds.json": {name: prediction.null_odds for name, prediction in predictions.items()},
            self.scores: scores,
        }
        for path, content in contents.items():
            with writing(path) as unfinished:
                unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    def write_model(self, model: Bert, inputs: Inputs) -> None:
        """Write the model as a weights file, with unchanged pre-training heads; raises CheckpointError."""
        write_weights(
            self.weights,
            {name: tensor.cpu() for name, tensor in model.state_dict().items()},
            model.shape,
            inputs.weights.real_vocab_size if inputs.weights else len(inputs.vocabulary),
            f"{inputs.start}; fine-tuned on {inputs.train_path.name}",
        )


def reserve_folder(out: Path) -> FinetuneFiles:
    """Reserve the folder of a fine-tuning run with an empty log.

    Raises ConfigError if it holds anything but an empty log, or can't be written.
    """
    files = FinetuneFiles(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = [path.name for path in out.iterdir() if path != files.log or path.stat().st_size]
        if there:
            raise ConfigError(f"{out}: holds {there[0]}, which is not overwritten; name another --out, or empty it")
        files.log.touch()
    except OSError as error:
        raise ConfigError(unwritable(out, error, "name another --out")) from error
    return files
