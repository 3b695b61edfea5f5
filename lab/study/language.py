"""Generate a made-up language that a tiny BERT learns in seconds, so that a study can afford hundreds of runs.

Each word is followed by one of a few others, all equally likely, so a masked word can be predicted only from its
neighbours. As with a real language, a model first learns word frequencies, which help little here, and stays at that
plateau until its attention finds the neighbours. A sample consists of two halves. In half of the samples, the second
half continues the first, and BERT's other head learns to recognise these.

Shapes: S sequences of N words, M masked words each.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from bertbench.data.store.columns import Integers
from bertbench.loading.batch import Batch
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.model.sequences import EqualLengths, Sequences

_MASK = 0  # the word that replaces a masked word


@dataclass(frozen=True)
class Language:
    """A language with `words` words, including the mask; it is the same for all seeds of a study."""

    words: int
    followers: int
    """The number of words that may follow a word."""
    length: int
    """The number of words in a sequence; it must be even."""
    masked: int
    """The number of masked words in a sequence."""

    @cached_property
    def _following(self) -> Integers:
        """Return each word's followers; each follower is a permutation of all words except the mask."""
        generator = np.random.default_rng(self.words)
        followers_WF = np.zeros((self.words, self.followers), np.int64)
        for place in range(self.followers):
            followers_WF[1:, place] = generator.permutation(np.arange(1, self.words))
        return followers_WF

    def sequences(self, generator: np.random.Generator, count: int) -> tuple[Integers, Integers]:
        """Draw sequences [S, N], and for each whether its second half doesn't continue the first [S]."""
        words_SN = np.empty((count, self.length), np.int64)
        words_SN[:, 0] = generator.integers(1, self.words, count)
        unrelated_S = generator.integers(0, 2, count)
        choices_SN = generator.integers(0, self.followers, (count, self.length))
        fresh_S = generator.integers(1, self.words, count)
        for place in range(1, self.length):
            words_SN[:, place] = self._following[words_SN[:, place - 1], choices_SN[:, place]]
            if place == self.length // 2:
                words_SN[:, place] = np.where(unrelated_S, fresh_S, words_SN[:, place])
        return words_SN, unrelated_S

    def shares(self, generator: np.random.Generator, batch: int, ranks: int) -> list[LoadedPart]:
        """Draw a global batch, and assign the same number of sequences to each rank.

        The batch depends only on the generator, not on the number of ranks.
        """
        words_SN, unrelated_S = self.sequences(generator, batch)
        at_SM = np.sort(np.argsort(generator.random(words_SN.shape), axis=1)[:, : self.masked], axis=1)
        labels_SM = np.take_along_axis(words_SN, at_SM, axis=1)
        np.put_along_axis(words_SN, at_SM, _MASK, axis=1)
        each = batch // ranks
        starts_S1 = torch.arange(each + 1, dtype=torch.int32) * self.length
        sequences = Sequences(starts_S1, (EqualLengths(0, each, self.length),))
        places_T = torch.arange(self.length, dtype=torch.int32).repeat(each)
        segments_T = (places_T >= self.length // 2).int()
        part = Part(np.arange(each), 1 / (batch * self.masked), 1 / batch)
        tokens_RT = torch.from_numpy(words_SN.astype(np.int32)).view(ranks, -1)
        at_RM = torch.from_numpy(at_SM).view(ranks, each, -1) + starts_S1[:-1, None].long()
        labels_RM, pairs_RS = torch.from_numpy(labels_SM).view(ranks, -1), torch.from_numpy(unrelated_S).view(ranks, -1)
        return [
            LoadedPart(part, Batch(tokens_T, segments_T, places_T, sequences, at_M, labels_M, pairs_S))
            for tokens_T, at_M, labels_M, pairs_S in zip(tokens_RT, at_RM.flatten(1), labels_RM, pairs_RS, strict=True)
        ]
