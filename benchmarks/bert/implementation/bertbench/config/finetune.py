"""How text becomes features and logits become answers: plain values, so that reading a system file stays cheap."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WindowOptions:
    """How a question and its context become sequences."""

    max_seq_length: int
    """Tokens of a sequence: [CLS] question [SEP] window of the context [SEP]."""
    doc_stride: int
    """Tokens from the start of a window to the start of the next."""
    max_query_length: int
    """Tokens of a question; the rest is cut off."""
    lower_case: bool


@dataclass(frozen=True)
class AnswerOptions:
    """How logits become answers."""

    max_answer_length: int
    """Tokens of an answer."""
    n_best: int
    """Answers of a question that are kept."""
    null_score_threshold: float
    """A question is left unanswered if the empty answer's score is above the best other's by more than this."""
