"""Make sentence pairs with masked tokens: the sample creation of BERT (Devlin et al., 2018; MLPerf's reference).

Every random choice comes from one `random.Random`, in the reference's order, so that the same documents, options
and seed give the reference's samples. Ids are vocabulary ids; a document is a list of tokenized sentences.
Samples are kept as flat arrays: a reference text part makes 80 million tokens.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Self

import numpy as np

from bertbench.data.store.columns import SAMPLE_FIELDS, Columns

Document = list[list[int]]
Ids = Mapping[str, int]
"""Every entry of the vocabulary, with its id. Blank lines of a vocab.txt are one entry, as in the reference."""
_BLOCK_SAMPLES = 4096
_TYPE_CODES = {"lengths": "q", "masked": "q", **{name: dtype.char for name, dtype in SAMPLE_FIELDS.items()}}
_Made = dict[str, "array[int]"]
"""Samples in the order in which they were made, under the field names of Columns."""


@dataclass(frozen=True)
class SampleOptions:
    """Options of sample creation, under the reference's names."""

    max_seq_length: int
    dupe_factor: int
    short_seq_prob: float
    masked_lm_prob: float
    max_predictions_per_seq: int
    cut_to_target: bool = False
    """Cut every pair to its document's target length. The reference only cuts to the maximum, which leaves no
    short sequences if most sentences are as long as the model allows, as with a tiny model and vocabulary."""


class _MaskIds(NamedTuple):
    """The ids that a sample gets besides its text's."""

    start: int
    separator: int
    mask: int
    entries: list[int]
    """A random word is one of these."""

    @classmethod
    def of(cls, ids: Ids) -> Self:
        return cls(ids["[CLS]"], ids["[SEP]"], ids["[MASK]"], list(ids.values()))


def create_samples(documents: list[Document], ids: Ids, options: SampleOptions, seed: int) -> Iterator[Columns]:
    """Yield all samples, shuffled, in blocks; shuffles `documents` in place first, as the reference does."""
    random = Random(seed)
    random.shuffle(documents)
    mask_ids = _MaskIds.of(ids)
    made = {name: array(code) for name, code in _TYPE_CODES.items()}
    for _ in range(options.dupe_factor):
        for index in range(len(documents)):
            _document_samples(documents, index, mask_ids, options, random, made)
    samples = Columns(**{name: np.asarray(values) for name, values in made.items()})
    order = list(range(len(samples)))
    random.shuffle(order)  # the reference shuffles the samples themselves, with the same draws
    for start in range(0, len(order), _BLOCK_SAMPLES):
        yield samples.take(np.array(order[start : start + _BLOCK_SAMPLES]))


def _document_samples(
    documents: list[Document], index: int, ids: _MaskIds, options: SampleOptions, random: Random, made: _Made
) -> None:
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
        sentences = end - start
        split = start + (random.randint(1, sentences - 1) if sentences >= 2 else 1)
        first = [token for sentence in document[start:split] for token in sentence]
        unrelated = sentences == 1 or random.random() < 0.5
        if unrelated:
            second = _unrelated(documents, index, target - len(first), random)
            end = split  # the next chunk uses the sentences after the split
        else:
            second = [token for sentence in document[split:end] for token in sentence]
        first, second = _truncated(first, second, target if options.cut_to_target else longest, random)
        _mask(first, second, unrelated, ids, options, random, made)
        start = end
        chunk_length = 0


def _unrelated(documents: list[Document], index: int, length: int, random: Random) -> list[int]:
    """Return sentences from a random place of another document, until they have at least `length` tokens."""
    for _ in range(10):  # it may still be the document itself, for example the only one
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


def _truncated(first: list[int], second: list[int], longest: int, random: Random) -> tuple[list[int], list[int]]:
    """Drop tokens from the longer part, at a random end, until both fit."""
    lengths = [len(first), len(second)]
    starts = [0, 0]
    for _ in range(sum(lengths) - longest):
        longer = 0 if lengths[0] > lengths[1] else 1
        lengths[longer] -= 1
        if random.random() < 0.5:
            starts[longer] += 1
    return first[starts[0] : starts[0] + lengths[0]], second[starts[1] : starts[1] + lengths[1]]


def _mask(
    first: list[int],
    second: list[int],
    unrelated: bool,
    ids: _MaskIds,
    options: SampleOptions,
    random: Random,
    made: _Made,
) -> None:
    """Choose 15 % of the tokens for prediction: 80 % become [MASK], 10 % stay, 10 % become a random entry."""
    tokens = [ids.start, *first, ids.separator, *second, ids.separator]
    candidates = list(range(1, len(tokens) - 1))
    del candidates[len(first)]  # the [SEP] in the middle
    _shuffle(candidates, random.getrandbits)
    count = min(options.max_predictions_per_seq, max(1, round(len(tokens) * options.masked_lm_prob)))
    chosen = candidates[:count]
    labels = [tokens[place] for place in sorted(chosen)]
    draw = random.random
    for place in chosen:
        if draw() < 0.8:
            tokens[place] = ids.mask
        elif draw() >= 0.5:
            tokens[place] = ids.entries[random.randint(0, len(ids.entries) - 1)]
    made["lengths"].append(len(tokens))
    made["masked"].append(len(chosen))
    made["input_ids"].extend(tokens)
    made["segment_ids"].frombytes(bytes(len(first) + 2) + b"\1" * (len(second) + 1))
    made["masked_lm_positions"].extend(sorted(chosen))
    made["masked_lm_ids"].extend(labels)
    made["next_sentence_labels"].append(unrelated)


def _shuffle(items: list[int], getrandbits: Callable[[int], int]) -> None:
    """Shuffle like random.shuffle, draw for draw, in 60 % of the time: the longest part of making a sample."""
    place = len(items) - 1
    while place > 0:
        bits = (place + 1).bit_length()
        fewest = max(1, (1 << (bits - 1)) - 1)  # the last place with draws of this many bits
        for here in range(place, fewest - 1, -1):
            other = getrandbits(bits)
            while other > here:
                other = getrandbits(bits)
            items[here], items[other] = items[other], items[here]
        place = fewest - 1
