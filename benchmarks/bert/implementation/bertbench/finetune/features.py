"""Turn questions into features: sequences of word pieces, and where their characters are in the context.

A context longer than a sequence becomes several overlapping windows (Devlin et al. 2018, google-research/bert).
Shapes: N tokens of a sequence, C of them in its window of the context, W windows.
"""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from bertbench.config.sections import WindowOptions
from bertbench.data.store.columns import Array, Flags, Integers
from bertbench.data.text.vocabulary import Vocabulary
from bertbench.finetune.squad import SquadQuestion


class Feature(NamedTuple):
    """One sequence of a question: [CLS] question [SEP] window [SEP]."""

    question: int
    """Number of the question in its file."""
    tokens_N: Array
    first: int
    """Place of the window's first token in the sequence."""
    offsets_C2: Array
    """The context's characters for each token of the window: the first, and one past the last."""
    widest_C: Flags
    """Whether no other window shows more context around the token. An answer may only begin at such tokens."""
    start: int
    """Place of the answer's first token; 0 ([CLS]) if the window doesn't hold the whole answer."""
    end: int
    """Place of the answer's last token."""
    is_labelled: bool = True
    """Whether start and end are known. They aren't if a development question's answers aren't at their stated places.
    """

    @property
    def length(self) -> int:
        """Return the number of tokens in the sequence."""
        return len(self.tokens_N)


def make_features(questions: Sequence[SquadQuestion], vocabulary: Vocabulary, options: WindowOptions) -> list[Feature]:
    """Return the features of all questions, in order, labelled with the first answer that is at its stated place.

    A question whose context has no token, such as a blank one, has no feature.
    """
    tokenizer = vocabulary.tokenizer(options.lower_case)
    contexts = list(dict.fromkeys(question.context for question in questions))
    encoded = dict(zip(contexts, _encoded(tokenizer, contexts, options.lower_case), strict=True))
    asked = _encoded(tokenizer, [question.text for question in questions], options.lower_case)
    cls, sep = (np.array([vocabulary.ids[token]], np.int32) for token in ("[CLS]", "[SEP]"))
    features = []
    for number, (question, query) in enumerate(zip(questions, asked, strict=True)):
        context = encoded[question.context]
        if not len(context.tokens_C):
            continue
        answer = _answer_tokens(question, context.offsets_C2)
        first, last = answer or (-1, -1)
        head = np.concatenate((cls, query.tokens_C[: options.max_query_length], sep))
        starts_W, stops_W = windows(len(context.tokens_C), options.max_seq_length - len(head) - 1, options.doc_stride)
        widest_C = _widest(len(context.tokens_C), starts_W, stops_W)
        for window, (start, stop) in enumerate(zip(starts_W.tolist(), stops_W.tolist(), strict=True)):
            inside = start <= first and last < stop
            features.append(
                Feature(
                    question=number,
                    tokens_N=np.concatenate((head, context.tokens_C[start:stop], sep)),
                    first=len(head),
                    offsets_C2=context.offsets_C2[start:stop],
                    widest_C=widest_C[start:stop] == window,
                    start=len(head) + first - start if inside else 0,
                    end=len(head) + last - start if inside else 0,
                    is_labelled=answer is not None,
                )
            )
    return features


def windows(tokens: int, room: int, stride: int) -> tuple[Integers, Integers]:
    """Return the first and one past the last token of each window of at most `room` tokens, `stride` tokens apart.

    The last window is the first one that reaches the end. No token is left out between two windows.
    """
    further = max(0, tokens - room)
    step = min(stride, room)
    starts_W = np.arange(1 + -(-further // step)) * step
    return starts_W, np.minimum(starts_W + room, tokens)


def text_of(context: str, start: int, stop: int) -> str:
    """Return the context from one character to another, including the accents of the last letter.

    The tokenizer drops combining marks, so no token covers them.
    """
    while stop < len(context) and unicodedata.combining(context[stop]):
        stop += 1
    return context[start:stop]


class _Encoded(NamedTuple):
    tokens_C: Array
    offsets_C2: Array


def _encoded(tokenizer: Tokenizer, texts: Sequence[str], lower_case: bool) -> list[_Encoded]:
    written = [_lowered(text) if lower_case else text for text in texts]
    encodings = tokenizer.encode_batch(written, add_special_tokens=False)
    return [
        _Encoded(np.array(encoding.ids, np.int32), np.array(encoding.offsets, np.int32).reshape(-1, 2))
        for encoding in encodings
    ]


def _lowered(text: str) -> str:
    """Lower-case the text as `Vocabulary.encode` does, unless a letter becomes two, such as the dotted Turkish I."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text


def _answer_tokens(question: SquadQuestion, offsets_C2: Array) -> tuple[int, int] | None:
    """Return the first and the last token that share a character with the first answer that is at its stated place.

    Returns (-1, -1) if the context has no answer, and None if it isn't known which tokens are the answer.
    """
    if not question.answers:
        return -1, -1
    for answer in question.placed:
        assert answer.answer_start is not None, "it is placed"
        first = int(np.searchsorted(offsets_C2[:, 1], answer.answer_start, side="right"))
        last = int(np.searchsorted(offsets_C2[:, 0], answer.answer_start + len(answer.text), side="left")) - 1
        if first <= last:
            return first, last
    return None


def _widest(tokens: int, starts_W: Integers, stops_W: Integers) -> Integers:
    """Return the window with the most context on each token's shorter side; of equal ones, the first."""
    widest_C = np.zeros(tokens, np.int64)
    most_C = np.full(tokens, -1)
    for window, (start, stop) in enumerate(zip(starts_W.tolist(), stops_W.tolist(), strict=True)):
        left_C = np.arange(stop - start)
        shorter_C = np.minimum(left_C, left_C[::-1])
        wider = start + np.flatnonzero(shorter_C > most_C[start:stop])
        widest_C[wider] = window
        most_C[wider] = shorter_C[wider - start]
    return widest_C
