"""Features worked out by hand: windows, labels, and offsets into the original text."""

import tracemalloc

import numpy as np
import pytest

from bertbench.config.sections import WindowOptions
from bertbench.data.text.vocabulary import Vocabulary
from bertbench.finetune.features import Feature, make_features, text_of, windows
from bertbench.finetune.squad import Answer, SquadQuestion

PAD, UNK, CLS, SEP, MASK, THE, CAT, S, SAT, ON, MAT, CAFE, WHO, ASK, DOT, WAY = range(16)
ENTRIES = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s sat on mat cafe who ? . οδος"
VOCABULARY = Vocabulary(tuple(ENTRIES.split()))
CONTEXT = "The cats sat on the Café mat."
OPTIONS = WindowOptions(max_seq_length=10, doc_stride=2, max_query_length=64, lower_case=True)


def ask(context: str, *answers: str, text: str = "Who sat?") -> SquadQuestion:
    return SquadQuestion("one", text, context, tuple(Answer(answer, context.index(answer)) for answer in answers))


def features(question: SquadQuestion, **options: object) -> list[Feature]:
    return make_features([question], VOCABULARY, WindowOptions(**{**vars(OPTIONS), **options}))


def test_a_long_context_becomes_windows_a_stride_apart() -> None:
    made = features(ask(CONTEXT, "cats sat"))
    head = [CLS, WHO, SAT, ASK, SEP]
    assert [feature.tokens_N.tolist() for feature in made] == [
        [*head, THE, CAT, S, SAT, SEP],
        [*head, S, SAT, ON, THE, SEP],
        [*head, ON, THE, CAFE, MAT, SEP],
        [*head, CAFE, MAT, DOT, SEP],
    ]
    assert {feature.first for feature in made} == {5}
    assert [feature.offsets_C2.tolist() for feature in made][::3] == [
        [[0, 3], [4, 7], [7, 8], [9, 12]],
        [[20, 24], [25, 28], [28, 29]],
    ]


def test_only_the_window_that_holds_the_whole_answer_is_labelled_with_it() -> None:
    made = features(ask(CONTEXT, "cats sat"))
    assert [(feature.start, feature.end) for feature in made] == [(6, 8), (0, 0), (0, 0), (0, 0)]
    both = features(ask(CONTEXT, "sat"))
    assert [(feature.start, feature.end) for feature in both] == [(8, 8), (6, 6), (0, 0), (0, 0)]


def test_a_token_counts_where_it_has_most_context() -> None:
    widest = [feature.widest_C.tolist() for feature in features(ask(CONTEXT))]
    assert widest == [[True, True, True, False], [False, True, True, False], [False, True, True, False],
                      [False, True, True]]  # fmt: skip
    assert sum(sum(window) for window in widest) == 9, "each of the nine tokens once"


@pytest.mark.parametrize(
    ("tokens", "room", "stride", "expected"),
    [
        (9, 4, 2, [(0, 4), (2, 6), (4, 8), (6, 9)]),
        (4, 4, 2, [(0, 4)]),
        (5, 4, 1, [(0, 4), (1, 5)]),
        (9, 4, 7, [(0, 4), (4, 8), (8, 9)]),  # a stride that would skip tokens is cut to the window
        (1, 4, 2, [(0, 1)]),
    ],
)
def test_windows_cover_all_tokens(tokens: int, room: int, stride: int, expected: list[tuple[int, int]]) -> None:
    starts, stops = windows(tokens, room, stride)
    assert list(zip(starts.tolist(), stops.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("answers", "place"),
    [
        ([], 0),  # [CLS]
        (["af"], 11),  # inside a token, which is taken whole
        (["mat", "cats"], 12),  # the first of several
    ],
)
def test_a_label_is_the_first_answer_s_whole_tokens_or_cls(answers: list[str], place: int) -> None:
    (made,) = features(ask(CONTEXT, *answers), max_seq_length=29)
    assert (made.start, made.end) == (place, place)


@pytest.mark.parametrize(
    ("context", "answer", "tokens"),
    [
        ("Café.", "Café", [CAFE]),  # é in one character
        ("the Cafe\u0301 mat", "Cafe\u0301", [CAFE]),  # and in two: no token stands for the accent
        ("😀 🧶 cats", "cats", [CAT, S]),  # characters beyond 16 bits count once
        ("İ\u200b cats", "cats", [CAT, S]),  # a letter that is two in lower case, and one that is dropped
        ("On ΟΔΟΣ.", "ΟΔΟΣ", [WAY]),  # a final sigma
        ("the cat東京sat", "東京", [UNK, UNK]),  # Chinese characters are words of their own
    ],
)
def test_tokens_map_back_to_the_original_text(context: str, answer: str, tokens: list[int]) -> None:
    (made,) = features(ask(context, answer), max_seq_length=29)
    assert made.tokens_N[made.start : made.end + 1].tolist() == tokens
    start, stop = made.offsets_C2[made.start - made.first, 0], made.offsets_C2[made.end - made.first, 1]
    assert text_of(context, start, stop) == answer


def test_a_long_question_is_cut_and_case_kept_where_the_vocabulary_is_cased() -> None:
    (cut,) = features(ask("The cat"), max_query_length=2)
    assert cut.tokens_N.tolist() == [CLS, WHO, SAT, SEP, THE, CAT, SEP]
    (cased,) = features(ask("The cat", text="who ?"), lower_case=False)
    assert cased.tokens_N.tolist() == [CLS, WHO, ASK, SEP, UNK, CAT, SEP]
    assert cased.tokens_N.dtype == np.int32


def test_a_context_without_a_token_has_no_window() -> None:
    assert [features(ask(blank)) for blank in ("", " ", "\u200b \u200b")] == [[], [], []]


def test_a_long_context_takes_memory_in_proportion_to_its_length() -> None:
    context = "cat " * 20_000
    features(ask(context))  # loads what is loaded once
    tracemalloc.start()
    made = features(ask(context), max_seq_length=96, doc_stride=32)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(feature.widest_C.sum() for feature in made) == 20_000
    assert most < 10 << 20  # a matrix of windows and tokens has 100 MB


def test_windows_are_labelled_by_the_first_answer_whose_place_and_tokens_are_known() -> None:
    unlabelled = (Answer("cat", 3), Answer("cat"), Answer("\u200b", 4), Answer(" ", 3), Answer("the", -13))
    (none,) = features(SquadQuestion("one", "who?", "the \u200b cat", unlabelled))
    assert (none.is_labelled, none.start, none.end) == (False, 0, 0)
    (third,) = features(SquadQuestion("one", "who?", "the \u200b cat", (*unlabelled, Answer("cat", 6))))
    assert (third.is_labelled, third.tokens_N[third.start]) == (True, CAT)
    (impossible,) = features(SquadQuestion("one", "who?", "the cat", ()))
    assert (impossible.is_labelled, impossible.start) == (True, 0)
