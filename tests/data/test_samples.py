from random import Random

import pytest

from bertbench.data.store.columns import Columns
from bertbench.data.text.sentence_pairs import Document, SampleOptions, create_samples
from tests.data.plain_samples import plain_samples
from tests.tiny import Sample, samples_of

IDS = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[MASK]": 3, **{str(number): number for number in range(4, 50)}}
OPTIONS = SampleOptions(
    max_seq_length=24, dupe_factor=3, short_seq_prob=0.1, masked_lm_prob=0.15, max_predictions_per_seq=5
)


def documents(count: int = 30) -> list[Document]:
    """Every token is unique to its document's number modulo 45, so that a sample shows where it comes from."""
    random = Random(1)
    return [[[5 + number] * random.randint(1, 9) for _ in range(random.randint(1, 8))] for number in range(count)]


def samples(options: SampleOptions = OPTIONS, seed: int = 7) -> list[Sample]:
    return samples_of(Columns.joined(list(create_samples(documents(), IDS, options, seed))))


def test_a_random_word_is_an_entry_even_if_blank_lines_of_a_vocabulary_share_the_last_one_s_id() -> None:
    ids = {**dict(list(IDS.items())[:4]), "": 10, **{str(number): number for number in range(5, 50) if number != 10}}
    found = samples_of(Columns.joined(list(create_samples(documents(), ids, OPTIONS, 7))))
    assert found == plain_samples(documents(), ids, OPTIONS, 7)


def test_a_single_document_is_enough() -> None:
    (block,) = create_samples([[[7, 8], [9]]], IDS, OPTIONS, 7)
    assert len(block) >= 3


def test_pairs_are_cut_to_the_maximum_or_to_their_target_on_request() -> None:
    cut = SampleOptions(24, 3, 0.9, 0.15, 5, cut_to_target=True)
    lengths = [len(sample.input_ids) for sample in samples(cut)]
    assert max(lengths) <= 24
    whole = [len(sample.input_ids) for sample in samples(SampleOptions(24, 3, 0.9, 0.15, 5))]
    assert sum(lengths) / len(lengths) < 0.9 * sum(whole) / len(whole)


@pytest.mark.parametrize("seed", range(2))
def test_samples_are_those_of_the_plainly_written_algorithm(seed: int) -> None:
    options = SampleOptions(24, 4, 0.3, 0.15, 3)
    assert samples(options, seed) == plain_samples(documents(), IDS, options, seed)
