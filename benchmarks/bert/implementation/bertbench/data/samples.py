"""Sentence pairs with masked tokens: the sample creation of BERT (Devlin et al., 2018; MLPerf's reference).

Every random choice comes from one `random.Random`, in the reference's order, so that the same documents, options
and seed give the reference's samples. Ids are vocabulary ids; a document is a list of tokenized sentences.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

Document = list[list[int]]


class Sample(NamedTuple):
    """One training sequence: [CLS] first sentence(s) [SEP] second sentence(s) [SEP], some tokens masked."""

    input_ids: list[int]
    segment_ids: list[int]
    masked_lm_positions: list[int]
    masked_lm_ids: list[int]
    next_sentence_label: int
    """0: the second part follows the first in its document; 1: it is from another document."""


@dataclass(frozen=True)
class SampleOptions:
    """How samples are made; the names are the reference's."""

    max_seq_length: int
    dupe_factor: int
    short_seq_prob: float
    masked_lm_prob: float
    max_predictions_per_seq: int
    cut_to_target: bool = False
    """Cut every pair to its document's target length. The reference cuts to the maximum only, which leaves no
    short sequences where most sentences are as long as the model allows, as with a tiny model and vocabulary."""


@dataclass(frozen=True)
class TokenIds:
    """The ids that sample creation needs to know."""

    cls: int
    sep: int
    mask: int
    vocab_size: int


def create_samples(documents: list[Document], ids: TokenIds, options: SampleOptions, seed: int) -> list[Sample]:
    """All samples of the documents, shuffled; documents are shuffled in place first, as the reference does."""
    random = Random(seed)
    random.shuffle(documents)
    samples = [
        sample
        for _ in range(options.dupe_factor)
        for index in range(len(documents))
        for sample in _document_samples(documents, index, ids, options, random)
    ]
    random.shuffle(samples)
    return samples


def _document_samples(
    documents: list[Document], index: int, ids: TokenIds, options: SampleOptions, random: Random
) -> Iterator[Sample]:
    """Cut one document into chunks of about the target length and make a sample of each."""
    document = documents[index]
    longest = options.max_seq_length - 3  # [CLS], [SEP], [SEP]
    target = longest
    if random.random() < options.short_seq_prob:
        target = random.randint(2, longest)
    start = end = 0  # the chunk is document[start:end]
    chunk_length = 0
    while end < len(document):
        chunk_length += len(document[end])
        end += 1
        if end < len(document) and chunk_length < target:
            continue
        split = start + (random.randint(1, end - start - 1) if end - start >= 2 else 1)
        first = [token for sentence in document[start:split] for token in sentence]
        unrelated = end - start == 1 or random.random() < 0.5
        if unrelated:
            second = _unrelated(documents, index, target - len(first), random)
            end = split  # what the chunk held after the split is used by the next one
        else:
            second = [token for sentence in document[split:end] for token in sentence]
        _truncate(first, second, target if options.cut_to_target else longest, random)
        yield _mask(first, second, int(unrelated), ids, options, random)
        start, chunk_length = end, 0


def _unrelated(documents: list[Document], index: int, length: int, random: Random) -> list[int]:
    """Sentences from a random place of another document, until at least `length` tokens are there."""
    for _ in range(10):  # a corpus of one document is allowed to answer with itself
        other = random.randint(0, len(documents) - 1)
        if other != index:
            break
    document = documents[other]
    tokens: list[int] = []
    for sentence in document[random.randint(0, len(document) - 1) :]:
        tokens += sentence
        if len(tokens) >= length:
            break
    return tokens


def _truncate(first: list[int], second: list[int], longest: int, random: Random) -> None:
    """Drop tokens from the longer part, at either end by chance, until both fit."""
    while len(first) + len(second) > longest:
        longer = first if len(first) > len(second) else second
        if random.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


def _mask(
    first: list[int], second: list[int], label: int, ids: TokenIds, options: SampleOptions, random: Random
) -> Sample:
    """Choose 15 % of the tokens for prediction: 80 % become [MASK], 10 % stay, 10 % turn into any entry."""
    tokens = [ids.cls, *first, ids.sep, *second, ids.sep]
    segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
    candidates = [place for place, token in enumerate(tokens) if token not in (ids.cls, ids.sep)]
    random.shuffle(candidates)
    count = min(options.max_predictions_per_seq, max(1, round(len(tokens) * options.masked_lm_prob)))
    masked: list[tuple[int, int]] = []
    for place in candidates[:count]:
        masked.append((place, tokens[place]))
        if random.random() < 0.8:
            tokens[place] = ids.mask
        elif random.random() >= 0.5:
            tokens[place] = random.randint(0, ids.vocab_size - 1)
    masked.sort()
    return Sample(tokens, segments, [place for place, _ in masked], [token for _, token in masked], label)
