from itertools import islice
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from bertbench.common.errors import DataError
from bertbench.data.text.corpus import python_documentation, split_sentences, text_articles, wiki_articles
from bertbench.data.text.vocabulary import SPECIAL_TOKENS, Vocabulary


@pytest.mark.parametrize(
    ("paragraph", "sentences"),
    [
        ("One. Two!  Three?", ["One.", "Two!", "Three?"]),
        ("It holds, e.g. Here, i.e. There. Next.", ["It holds, e.g. Here, i.e. There.", "Next."]),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("Version 3.11 is out. see below", ["Version 3.11 is out. see below"]),
        ("  \n ", []),
    ],
)
def test_sentences_end_where_a_reader_ends_them(paragraph: str, sentences: list[str]) -> None:
    assert split_sentences(paragraph) == sentences


def test_blank_lines_separate_articles(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("a b.\nc.\n\n\nd.\n")
    assert list(text_articles(path)) == [["a b.", "c."], ["d."]]


def test_wikipedia_blocks_become_articles_without_their_title(tmp_path: Path) -> None:
    path = tmp_path / "wiki_00"
    path.write_text(
        '<doc id="1" url="u" title="T">\nT\n\nFirst one. Second one.\nThird.\n</doc>\n<doc id="2">\nU\n\nX.\n</doc>\n'
    )
    assert list(wiki_articles(path)) == [["First one.", "Second one.", "Third."], ["X."]]


@pytest.mark.parametrize("content", ["<doc>\nT\nA.\n", "</doc>\n", "A.\n", "<doc>\n<doc>\n</doc>\n"])
def test_broken_wikipedia_blocks_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "wiki_00"
    path.write_text(content)
    with pytest.raises(DataError, match="outside a complete <doc>"):
        list(wiki_articles(path))


def test_the_documentation_of_python_is_prose() -> None:
    articles = list(islice(python_documentation(), 60))
    words = [word for article in articles for sentence in article for word in sentence.split()]
    assert len(words) > 1_000
    assert ">>>" not in words


def test_the_documentation_of_python_skips_a_dangling_link(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    (tmp_path / "a.py").symlink_to(tmp_path / "none")
    (tmp_path / "b.py").write_text('"""The files of a library may be links to others which nobody installed."""\n')
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    assert next(python_documentation()) == ["The files of a library may be links to others which nobody installed."]


def test_a_trained_vocabulary_has_its_size_and_encodes_what_it_saw() -> None:
    vocabulary = Vocabulary.train(["the cat sat on the mat", "The mat."] * 3, 60)
    assert vocabulary.tokens[:5] == SPECIAL_TOKENS
    assert len(vocabulary) <= 60
    (ids,) = vocabulary.encode(["THE mat qqq"])
    pieces = [vocabulary.tokens[number] for number in ids]
    assert pieces[:2] == ["the", "mat"]
    assert pieces[2:] == ["[UNK]"]


@pytest.mark.parametrize(
    ("words", "lower_case", "warns"),
    [
        (["the", "Berlin", "##S"], True, True),
        (["the", "berlin", "##s", "[unused1]", "[Q]"], True, False),
        (["the", "Berlin"], False, False),
        (["the", "berlin", "[Q]"], False, True),
        (["東京", "12"], True, False),
        (["東京", "12"], False, False),
    ],
)
def test_a_vocabulary_of_the_other_case_is_warned_of(words: list[str], lower_case: bool, warns: bool) -> None:
    warning = Vocabulary((*SPECIAL_TOKENS, *words)).wrong_case(Path("vocab.txt"), lower_case)
    assert (warning is not None) == warns


def test_a_vocabulary_too_small_for_its_characters_is_refused() -> None:
    with pytest.raises(DataError, match="fill a vocabulary of 9"):
        Vocabulary.train(["some letters"], 9)


@pytest.mark.parametrize(
    ("content", "expected"), [("a\nb\n", r"no entry \[PAD\]"), ("a\n \na\u2028\n", "'a' in lines 1 and 3")]
)
def test_a_vocabulary_file_needs_special_tokens_and_no_repetition(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text(content)
    with pytest.raises(DataError, match=expected):
        Vocabulary.read(path)


def test_blank_lines_take_ids_that_no_word_has(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n[PAD]\n\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n\u2028\nthe\n \t\ncat\n##s\n\n\n", encoding="utf-8")
    vocabulary = Vocabulary.read(path)
    assert [vocabulary.ids[entry] for entry in (*SPECIAL_TOKENS, "the", "cat", "##s")] == [1, 3, 4, 5, 6, 8, 10, 11]
    assert len(vocabulary) == 14
    assert list(vocabulary.encode(["the cats", "\u2028"])) == [[8, 10, 11], []]
    assert vocabulary.tokenizer().encode("the cats", add_special_tokens=False).ids == [8, 10, 11]
    vocabulary.write(tmp_path)  # as a dataset keeps it
    assert Vocabulary.read(path) == vocabulary
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    assert theirs("the cats")["input_ids"] == [4, 8, 10, 11, 5]


def test_a_byte_order_mark_is_dropped_unless_it_could_change_a_word(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\ufeff" + "\n".join((*SPECIAL_TOKENS, "the")), encoding="utf-8")
    assert Vocabulary.read(path).tokens == (*SPECIAL_TOKENS, "the")
    path.write_text("\ufeff" + "\n".join(("the", *SPECIAL_TOKENS)), encoding="utf-8")
    with pytest.raises(
        DataError, match="byte order mark, which google-research's loader takes for a part of the first entry 'the'"
    ):
        Vocabulary.read(path)
