"""Turn MLPerf's fields into samples: remove padding, split packed rows.

A layout pads with 0: `input_mask` says where tokens end, and a masked position of 0 (the [CLS] token, which is
never masked) where predictions end. Any contradiction is an error that names the row.
"""

from collections.abc import Mapping

import numpy as np

from bertbench.common.errors import DataError
from bertbench.data.formats.rows import Block, FilePlace, Rows
from bertbench.data.store.columns import Columns, Flags, offsets, places_of_spans

MAX_PACKED = 3  # sequences in a packed row of the published files
RowsByField = Mapping[str, Rows]
"""N rows of each field, under MLPerf's names."""


def unpadded(fields: RowsByField, place: FilePlace) -> Block:
    """Return the samples, one per row, without padding. If there is no `input_mask`, rows hold only tokens.

    Raises DataError for the first row with wrong padding.
    """
    tokens = fields["input_ids"]
    positions = fields["masked_lm_positions"]
    labels = fields["masked_lm_ids"]
    pairs = fields["next_sentence_labels"]
    _require_equal_counts(place, fields, "input_ids", "segment_ids")
    _require_equal_counts(place, fields, "masked_lm_positions", "masked_lm_ids")
    if (pairs.counts > 1).any():
        row = int(np.argmax(pairs.counts > 1))
        raise DataError(
            f"{place.path}: {place.unit} {place.first + row}: found {pairs.counts[row]:,} next_sentence_labels but no "
            "packed_input_len: the packed layout of another vendor, which isn't read (docs/data.md); unpack its "
            "samples with that vendor's tools, or make the samples from MLPerf's text"
        )
    place.refuse(pairs.counts < 1, lambda row: "no next_sentence_labels, expected 1 for a single sample")
    is_token = np.ones(len(tokens.values), np.bool_)
    if "input_mask" in fields:
        _require_equal_counts(place, fields, "input_ids", "input_mask")
        mask = fields["input_mask"]
        is_token = mask.values == 1
        is_neither_T = ~is_token & (mask.values != 0)
        place.refuse(
            mask.any_where(is_neither_T),
            lambda row: f"{mask.values[np.argmax(is_neither_T)]} in input_mask, expected 0 or 1",
        )
        _require_padding(
            place, tokens, is_token, "an input_mask that isn't ones, then zeros", "a token where input_mask isn't 1"
        )
    is_masked = positions.values != 0
    _require_padding(
        place,
        labels,
        is_masked,
        "masked_lm_positions with a 0 before the last position",
        "a label in masked_lm_ids at masked position 0",
    )
    columns = Columns(
        lengths=tokens.count_where(is_token),
        masked=positions.count_where(is_masked),
        input_ids=tokens.values[is_token],
        segment_ids=fields["segment_ids"].values[is_token],
        masked_lm_positions=positions.values[is_masked],
        masked_lm_ids=labels.values[is_masked],
        next_sentence_labels=pairs.values,
    )
    return Block(columns, np.arange(len(columns)), place)


def unpacked(fields: RowsByField, place: FilePlace) -> Block:
    """Return the samples of packed rows, in order. Raises DataError for the first row whose lengths don't add up."""
    lengths = fields["packed_input_len"]
    positions = fields["masked_lm_positions"]
    place.refuse(
        (lengths.counts < 1) | (lengths.counts > MAX_PACKED),
        lambda row: f"{lengths.counts[row]} sequences in packed_input_len, expected 1 to {MAX_PACKED}",
    )
    _require_equal_counts(place, fields, "packed_input_len", "packed_masked_lm_len")
    _require_equal_counts(place, fields, "packed_input_len", "next_sentence_labels")
    _require_parts(place, fields, "packed_input_len", "input_ids")
    _require_parts(place, fields, "packed_input_len", "segment_ids")
    _require_parts(place, fields, "packed_masked_lm_len", "masked_lm_positions")
    _require_parts(place, fields, "packed_masked_lm_len", "masked_lm_ids")
    owners = lengths.owners()
    lengths_N = lengths.values.astype(np.int64)
    masked_N = fields["packed_masked_lm_len"].values.astype(np.int64)
    before_N = np.cumsum(lengths_N) - lengths_N  # tokens of the block before each sample
    row_starts = offsets(fields["input_ids"].counts)[owners]
    columns = Columns(
        lengths=lengths_N,
        masked=masked_N,
        input_ids=fields["input_ids"].values,
        segment_ids=fields["segment_ids"].values,
        # unsigned positions would become floats, or wrap round, before the check of their values
        masked_lm_positions=positions.values.astype(np.int64) - np.repeat(before_N - row_starts, masked_N),
        masked_lm_ids=fields["masked_lm_ids"].values,
        next_sentence_labels=fields["next_sentence_labels"].values,
    )
    place.refuse(
        positions.any_where(columns.masked_lm_positions == 0),
        lambda row: "a masked position at the start of a sequence, expected none: [CLS] is never masked",
    )
    return Block(columns, owners, place)


def _require_padding(place: FilePlace, rows: Rows, kept_T: Flags, hole: str, value: str) -> None:
    """Raise DataError unless values that aren't kept are 0 and end their row; `hole` and `value` name the faults."""
    place_in_row_T = places_of_spans(np.zeros_like(rows.counts), rows.counts)
    kept_in_row_T = np.repeat(rows.count_where(kept_T), rows.counts)
    should_be_kept_T = place_in_row_T < kept_in_row_T
    place.refuse(rows.any_where(kept_T != should_be_kept_T), lambda row: f"{hole}, expected padding at the end only")
    is_stray_T = ~kept_T & (rows.values != 0)
    place.refuse(rows.any_where(is_stray_T), lambda row: f"{value}, expected 0 there: it means padding")


def _require_equal_counts(place: FilePlace, fields: RowsByField, name: str, other_name: str) -> None:
    counts = fields[name].counts
    others = fields[other_name].counts
    place.refuse(
        counts != others,
        lambda row: f"{counts[row]:,} {name} but {others[row]:,} {other_name}, expected the same number",
    )


def _require_parts(place: FilePlace, fields: RowsByField, name: str, other_name: str) -> None:
    """Raise DataError unless the packed lengths `name` are positive and add up to the lengths of another field."""
    lengths = fields[name]
    counts = fields[other_name].counts
    sums = lengths.sums()
    place.refuse(lengths.any_where(lengths.values < 1), lambda row: f"a {name} below 1, expected at least 1")
    longer_T = lengths.values > np.repeat(counts, lengths.counts)  # their sum could wrap round
    place.refuse(lengths.any_where(longer_T), lambda row: f"a {name} above {counts[row]:,}, its row's {other_name}")
    place.refuse(
        counts != sums,
        lambda row: f"{counts[row]:,} {other_name}, expected {sums[row]:,}, the sum of its packed lengths",
    )
