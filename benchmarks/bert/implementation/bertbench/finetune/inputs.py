"""Open the inputs of a fine-tuning, and check that questions, vocabulary and initial weights fit each other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bertbench.checkpoint.start import check_weights, one_checkpoint
from bertbench.common.errors import ConfigError
from bertbench.common.paths import weights_file
from bertbench.config import System
from bertbench.data.store.manifest import file_sha256
from bertbench.data.text.vocabulary import Vocabulary
from bertbench.finetune.squad import Question, read_squad
from bertbench.weights.file import Weights


@dataclass(frozen=True)
class Inputs:
    """The input files and their content."""

    train_path: Path
    dev_path: Path
    vocab_path: Path
    train: list[Question]
    dev: list[Question]
    vocabulary: Vocabulary
    weights: Weights | None
    """None: the model starts from random weights."""

    @classmethod
    def open(cls, system: System, train: Path, dev: Path, vocab: Path, init: Path | None) -> Self:
        """Read everything but the weights' tensors; `init` defaults to the system's model.checkpoint.

        Raises DataError, CheckpointError or ConfigError for files that can't be read, are damaged or don't fit.
        """
        if system.precision.compute == "fp16":  # as the file says; --set is refused before
            raise ConfigError("precision.compute fp16: fine-tuning has no loss scaling; use bf16 or fp32")
        system.finetune.windows(system.model.max_positions)  # raises its errors
        vocabulary = Vocabulary.read(vocab)
        if len(vocabulary) > system.model.vocab_size:
            raise ConfigError(
                f"{vocab}: has {len(vocabulary):,} entries, model.vocab_size is {system.model.vocab_size:,}; "
                "raise model.vocab_size, or give the vocabulary that belongs to the model"
            )
        if init is not None:
            one_checkpoint(system, "--init", init)
        elif system.model.checkpoint is not None:
            init = weights_file(system.model.checkpoint)
        weights = check_weights(system, init, len(vocabulary)) if init else None
        return cls(train, dev, vocab, read_squad(train), read_squad(dev), vocabulary, weights)

    @property
    def may_abstain(self) -> bool:
        """Return whether the training file has questions without answers, as SQuAD 2.0 does."""
        return any(not question.answers for question in self.train)

    @property
    def start(self) -> str:
        """Return the origin of the initial weights."""
        return self.weights.source if self.weights else "random weights"

    def description(self) -> dict[str, object]:
        """Return paths, checksums and counts for scores.json."""
        return {
            "train": {**_file(self.train_path), "questions": len(self.train)},
            "dev": {**_file(self.dev_path), "questions": len(self.dev)},
            "vocab": {**_file(self.vocab_path), "entries": len(self.vocabulary)},
            "init": self.weights
            and {"path": str(self.weights.path), "sha256": self.weights.sha256(), "source": self.weights.source},
        }


def _file(path: Path) -> dict[str, object]:
    return {"path": str(path), "sha256": file_sha256(path)}
