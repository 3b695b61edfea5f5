"""The splitter against the reference's own words, pinned as digests."""

import hashlib
import json
from pathlib import Path
from random import Random

import pytest

from bertbench.data.text.corpus import text_articles
from bertbench.data.text.mlperf import MlperfRecipe
from bertbench.data.text.prepare import tokenize
from bertbench.data.text.vocabulary import SPECIAL_TOKENS, Vocabulary, word_pieces
from bertbench.data.text.words import chunks, words
from tests.data.datasets import made, read
from tests.data.every_character import digest
from tests.tiny import tiny_text

# What every_character.py printed under Python 3.7.16, given the reference's tokenization.py.
REFERENCE = Path(__file__).with_name("every_character.sha256").read_text().splitlines()
# White space of every kind, what is dropped, marks, sigmas, case pairs, ideographs, Hangul, and what changed since.
ODD = (
    "\0\t\r \x0b\x0c\x1c\x1f\x7f\x85\xa0\xad\u1680\u180e\u2003\u200b\u2028\u2029\u202e\u3000\ufeff\ufffd\ufffe\uffff"
    "\u0300\u0301\u0327\u0345\u05b0\u1734\u302e\u302f\ua9bd\U0001d165\U000e0100\u03a3\u03a3\u03a3\u03c2\u0130\u01c5\u1e9e"
    "\u10a0\u1c90\u2126\u212b\u2c2f\ua7c5\u4e00\uf900\U0002f800\U0002a6d7\uac01\u0958\u055f\u166d\u1cf2\u00b7\u02b0.:'_$^"
    "\ue000\uf8ff\U000f0000\U0010fffd\u0378\u08be\U0001f9e6\U0001f9a3\U0001faf0\U0001e900\U00011f00\U0001133b"
)


@pytest.mark.parametrize(
    "plane",
    [pytest.param(plane, marks=pytest.mark.slow if plane else ()) for plane in range(17)],
)
def test_every_character_is_split_as_the_reference_splits_it(plane: int) -> None:
    assert digest(plane, split) == REFERENCE[plane]


def split(text: str) -> list[str]:
    return [word for chunk in chunks(text) for word in words(chunk)]


def odd_word(random: Random) -> str:
    letters = [
        random.choice(ODD) if random.random() < 0.6 else random.choice("aBc\xc9\u0391\u03b2Z9") for _ in range(8)
    ]
    return "".join(letters[: random.randint(1, 8)])


def pinned(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def test_random_text_gives_the_ids_that_the_reference_s_tokenizer_gave_when_written_a_character_at_a_time() -> None:
    random = Random(17)
    first = ["a", "ab", "b", "c", "e", "z", "9", ".", ":", "\u4e00", "\ue000", "\u03b1"]
    pieces = [*first, "##a", "##b", "##c", "##e", "##9", "##\u03c3", "##\u03c2", "##\u03b1", "##\U0001f9a3"]
    texts = [" ".join(odd_word(random) for _ in range(random.randint(1, 6))) for _ in range(2000)]
    found = list(Vocabulary((*SPECIAL_TOKENS, *pieces)).encode(texts))
    assert pinned(found) == "5bb45cb89fcc93649518d940feeb58b93147338d7e1b730be7df4d04826c3041"
    assert len({number for ids in found for number in ids}) == len(pieces) + 1  # every entry, and [UNK]
    assert pinned(list(map(split, texts))) == "84cddca10e96ae54d1d3c943329f16703c9f6f422d0be96048ed879f0f89a584"


def test_a_text_with_an_odd_word_in_forty_gives_the_reference_s_samples(tmp_path: Path) -> None:
    random = Random(3)
    lines = []
    for line in tiny_text(random, articles=40).split("\n"):
        parts = [part if random.random() > 1 / 40 else part + odd_word(random) for part in line.split()]
        lines.append(" ".join(parts) + random.choice(["", "", "", "\r"]))
        lines += [random.choice(["\r", "\u2028", "\x1c", "\u200b"])] if random.random() < 0.05 else []
    text, vocab = tmp_path / "text", tmp_path / "vocab.txt"
    text.write_text("\n".join(lines), encoding="utf-8", newline="")
    entries = (*SPECIAL_TOKENS, "the", "model", "learn", "##s", "words", "from", "a", ".", "\ue000")
    vocab.write_text("\n".join(entries) + "\n", encoding="utf-8")
    made(tmp_path / "out", [text], vocab, MlperfRecipe(dupe_factor=3))
    # of the reference's tokenizer written a character at a time, and tests/data/plain_samples.py
    assert pinned(read(tmp_path / "out")) == "967d4e2dded60cfa751c6217df1fedb97c0769403d4a2b138a92b41f5b1879a6"


def test_lines_end_at_newlines_and_contain_no_carriage_return(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"a\rb\r\n\r\nc\xc2\x85\xe2\x80\xa8d\x0ce\n\xe2\x80\xa8\nf\r")
    assert list(text_articles(path)) == [["ab"], ["c\x85\u2028d\x0ce"], ["f"]]


def test_a_sentence_of_dropped_characters_doesn_t_end_an_article(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("a\n\u200b\na\n\na\n", encoding="utf-8")
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a"))
    assert tokenize(list(text_articles(path)), vocabulary) == [[[5], [5]], [[5]]]


def test_the_longest_piece_is_taken_and_an_impossible_word_is_unknown() -> None:
    ids = {entry: place for place, entry in enumerate(("[UNK]", "un", "una", "##aff", "##able", "##a", "##f"))}
    assert word_pieces("unaffable", ids) == [2, 6, 6, 4]  # una ##f ##f ##able: greedy, never back to un ##aff
    assert word_pieces("unx", ids) == [0]
    assert word_pieces("un" + "a" * 198, ids) == [2, *[5] * 197]
    assert word_pieces("un" + "a" * 199, ids) == [0]  # 201 characters


def test_white_space_around_an_entry_is_stripped_and_no_entry_ends_at_a_line_separator(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join((*SPECIAL_TOKENS, "a\u2028b", "c ")).encode())
    assert Vocabulary.read(path).tokens == (*SPECIAL_TOKENS, "a\u2028b", "c")
