"""Turn MLPerf's fields into samples: remove padding, split packed rows.

A layout pads with 0: `input_mask` says where tokens end, and a masked position of 0 (the [CLS] token, which is
never masked) where predictions end. Any contradiction is an error that names the row.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertbench.data.formats.rows import Block, Place, Rows
from bertbench.data.store.columns import Columns

MAX_PACKED = 3  # sequences in a packed row of the published files


class Padded(NamedTuple):
    """N samples, one a row; `input_mask` is None if rows hold only tokens."""

    input_ids: Rows
    segment_ids: Rows
    masked_lm_positions: Rows
    masked_lm_ids: Rows
    next_sentence_labels: Rows
    input_mask: Rows | None = None


class Packed(NamedTuple):
    """N rows of 1 to 3 samples each; positions count from the start of the row."""

    input_ids: Rows
    segment_ids: Rows
    masked_lm_positions: Rows
    masked_lm_ids: Rows
    packed_input_len: Rows
    packed_masked_lm_len: Rows
    next_sentence_labels: Rows


def unpadded(fields: Padded, place: Place) -> Block:
    """Return the samples without padding. Raises DataError for the first row with wrong padding."""
    tokens, segments = fields.input_ids, fields.segment_ids
    positions, labels = fields.masked_lm_positions, fields.masked_lm_ids
    _require_equal_counts(place, "input_ids", tokens, "segment_ids", segments)
    _require_equal_counts(place, "masked_lm_positions", positions, "masked_lm_ids", labels)
    _require_one_label(place, fields.next_sentence_labels)
    is_token = np.ones(len(tokens.values), np.bool_)
    if fields.input_mask is not None:
        _require_equal_counts(place, "input_ids", tokens, "input_mask", fields.input_mask)
        is_token = _tokens_of_mask(place, tokens, fields.input_mask)
    is_masked = positions.values != 0
    _require_prefix(place, positions, is_masked, "masked_lm_positions with a 0 before the last position")
    place.require(
        ~labels.any_where(~is_masked & (labels.values != 0)),
        lambda row: "a label in masked_lm_ids at masked position 0, expected 0 there: it means padding",
    )
    columns = Columns(
        lengths=tokens.count_where(is_token),
        masked=positions.count_where(is_masked),
        input_ids=tokens.values[is_token],
        segment_ids=segments.values[is_token],
        masked_lm_positions=positions.values[is_masked],
        masked_lm_ids=labels.values[is_masked],
        next_sentence_labels=fields.next_sentence_labels.values,
    )
    return Block(columns, np.arange(len(columns)), place)


def unpacked(fields: Packed, place: Place) -> Block:
    """Return the samples of packed rows, in order. Raises DataError for the first row whose lengths don't add up."""
    lengths, masked = fields.packed_input_len, fields.packed_masked_lm_len
    place.require(
        (lengths.counts >= 1) & (lengths.counts <= MAX_PACKED),
        lambda row: f"{lengths.counts[row]} sequences in packed_input_len, expected 1 to {MAX_PACKED}",
    )
    _require_equal_counts(place, "packed_input_len", lengths, "packed_masked_lm_len", masked)
    _require_equal_counts(place, "packed_input_len", lengths, "next_sentence_labels", fields.next_sentence_labels)
    for name, inside in (("packed_input_len", lengths), ("packed_masked_lm_len", masked)):
        _require_positive(place, name, inside)
    for name, whole, inside in (
        ("input_ids", fields.input_ids, lengths),
        ("segment_ids", fields.segment_ids, lengths),
        ("masked_lm_positions", fields.masked_lm_positions, masked),
        ("masked_lm_ids", fields.masked_lm_ids, masked),
    ):
        _require_sum(place, name, whole, inside)
    owners = lengths.owners()
    lengths_N = lengths.values.astype(np.int64)
    masked_N = masked.values.astype(np.int64)
    before_N = np.cumsum(lengths_N) - lengths_N  # tokens of the block before each sample
    row_starts = np.concatenate(([0], np.cumsum(fields.input_ids.counts)))[owners]
    columns = Columns(
        lengths=lengths_N,
        masked=masked_N,
        input_ids=fields.input_ids.values,
        segment_ids=fields.segment_ids.values,
        masked_lm_positions=fields.masked_lm_positions.values - np.repeat(before_N - row_starts, masked_N),
        masked_lm_ids=fields.masked_lm_ids.values,
        next_sentence_labels=fields.next_sentence_labels.values,
    )
    place.require(
        ~fields.masked_lm_positions.any_where(columns.masked_lm_positions == 0),
        lambda row: "a masked position at the start of a sequence, expected none: [CLS] is never masked",
    )
    return Block(columns, owners, place)


def _tokens_of_mask(place: Place, tokens: Rows, mask: Rows) -> NDArray[np.bool_]:
    is_token = mask.values == 1
    place.require(
        ~mask.any_where(~is_token & (mask.values != 0)), lambda row: "an input_mask other than 0 and 1, expected these"
    )
    _require_prefix(place, mask, is_token, "an input_mask with a 0 before its last 1")
    place.require(
        ~tokens.any_where(~is_token & (tokens.values != 0)),
        lambda row: "a token where input_mask is 0, expected 0 there: it means padding",
    )
    return is_token


def _require_prefix(place: Place, rows: Rows, marks_T: NDArray[np.bool_], found: str) -> None:
    kept = rows.count_where(marks_T)
    place.require(
        ~rows.any_where(marks_T != (rows.places() < np.repeat(kept, rows.counts))),
        lambda row: f"{found}, expected padding at the end only",
    )


def _require_equal_counts(place: Place, name: str, rows: Rows, other_name: str, other: Rows) -> None:
    place.require(
        rows.counts == other.counts,
        lambda row: f"{rows.counts[row]:,} {name} with {other.counts[row]:,} {other_name}, expected as many",
    )


def _require_one_label(place: Place, labels: Rows) -> None:
    place.require(
        labels.counts == 1, lambda row: f"{labels.counts[row]:,} next_sentence_labels, expected 1 for a single sample"
    )


def _require_positive(place: Place, name: str, rows: Rows) -> None:
    place.require(~rows.any_where(rows.values < 1), lambda row: f"a {name} below 1, expected at least 1")


def _require_sum(place: Place, name: str, whole: Rows, lengths: Rows) -> None:
    sums = lengths.sums()
    place.require(
        whole.counts == sums,
        lambda row: f"{whole.counts[row]:,} {name}, expected {sums[row]:,}, the sum of its packed lengths",
    )
