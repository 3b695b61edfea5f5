"""Open the inputs of a fine-tuning run, and check that questions, vocabulary and initial weights fit each other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bertbench.checkpoint.start import check_weights, one_checkpoint
from bertbench.checkpoint.weights_file import Weights
from bertbench.common.errors import ConfigError
from bertbench.common.paths import data_path
from bertbench.config import System
from bertbench.data.store.manifest import file_sha256
from bertbench.data.text.vocabulary import Vocabulary
from bertbench.finetune.squad import SquadQuestion, describe_fault, read_squad, repeated_ids, trainable


@dataclass(frozen=True)
class Inputs:
    """The input files and their content."""

    train_path: Path
    dev_path: Path
    vocab_path: Path
    train: list[SquadQuestion]
    """The training questions that can be used."""
    left_out: list[SquadQuestion]
    """The other questions of the training file."""
    dev: list[SquadQuestion]
    vocabulary: Vocabulary
    weights: Weights | None
    """The initial weights; None if the model starts from random weights."""

    @classmethod
    def open(cls, system: System, train: Path, dev: Path, vocab: Path, weights_path: Path | None) -> Self:
        """Read everything but the weights' tensors; `weights_path` defaults to the system's model.checkpoint.

        Raises DataError, CheckpointError or ConfigError for files that can't be read, are damaged or don't fit.
        """
        vocabulary = Vocabulary.read(vocab)
        if len(vocabulary) > system.model.vocab_size:
            raise ConfigError(
                f"{vocab}: has {len(vocabulary):,} entries, but model.vocab_size is {system.model.vocab_size:,}; "
                "raise model.vocab_size, or give the vocabulary that belongs to the model"
            )
        if weights_path is not None:
            one_checkpoint(system, "--weights", weights_path)
        elif system.model.checkpoint is not None:
            weights_path = data_path(system.model.checkpoint)
        weights = check_weights(system, weights_path, len(vocabulary)) if weights_path else None
        asked = read_squad(train)
        kept = trainable(train, asked)
        left_out = [question for question in asked if question.fault is not None]
        return cls(train, dev, vocab, kept, left_out, read_squad(dev), vocabulary, weights)

    @property
    def may_abstain(self) -> bool:
        """Return whether the training file has questions without answers, as SQuAD 2.0 does."""
        return any(not question.answers for question in self.train)

    @property
    def _unplaced(self) -> list[SquadQuestion]:
        return [question for question in self.dev if question.answers and not question.placed]

    def warnings(self, lower_case: bool, without_token: int = 0, dev_without_token: int = 0) -> list[str]:
        """Return a line for each reason why some questions can't be used as they are, or texts read otherwise.

        `without_token` is the number of training questions whose answer or context has no token in this vocabulary,
        and `dev_without_token` that of development questions whose context has none.
        """
        lines = []
        if case := self.vocabulary.wrong_case(self.vocab_path, lower_case):
            lines.append(case)
        if self.left_out:
            lines.append(
                f"warning: {self.train_path}: {len(self.left_out):,} of {len(self.left_out) + len(self.train):,} "
                f"questions are left out of training; the first: {describe_fault(self.left_out[0])}"
            )
        if without_token:
            lines.append(
                f"warning: {self.train_path}: {without_token:,} questions are left out of training, because their "
                "answers or their contexts contain no token"
            )
        if dev_without_token:
            lines.append(
                f"warning: {self.dev_path}: {dev_without_token:,} of {len(self.dev):,} questions have a context "
                "without a token; their predictions are empty"
            )
        if repeated := repeated_ids(self.dev_path, self.dev):
            lines.append(repeated)
        if self._unplaced:
            lines.append(
                f"warning: {self.dev_path}: {len(self._unplaced):,} of {len(self.dev):,} questions have no answer at "
                "its stated place; they are scored, but left out of the validation loss"
            )
        return lines

    @property
    def start(self) -> str:
        """Return where the initial weights come from."""
        return self.weights.source if self.weights else "random weights"

    def description(self, without_token: int = 0) -> dict[str, object]:
        """Return paths, checksums and counts for scores.json; `without_token` as in `warnings`."""
        used, left_out = len(self.train) - without_token, len(self.left_out) + without_token
        return {
            "train": {**_file(self.train_path), "questions": used, "left_out": left_out},
            "dev": {**_file(self.dev_path), "questions": len(self.dev), "unplaced": len(self._unplaced)},
            "vocab": {**_file(self.vocab_path), "entries": len(self.vocabulary)},
            "init": self.weights
            and {"path": str(self.weights.path), "sha256": self.weights.sha256(), "source": self.weights.source},
        }


def _file(path: Path) -> dict[str, object]:
    return {"path": str(path), "sha256": file_sha256(path)}
