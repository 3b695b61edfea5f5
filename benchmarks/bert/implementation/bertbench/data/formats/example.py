"""Read tf.train.Example, a protobuf message, without protobuf: features by name, values of many records at once.

The message: Example {1: Features {1: repeated entry {1: name, 2: Feature {1: bytes | 2: floats | 3: integers}}}},
each list {1: repeated values}; the wire format is protobuf.dev's "Encoding". TensorFlow packs a list's values into
one field; one field per value is valid too, and is read.
"""

from collections.abc import Sequence

import numpy as np

from bertbench.common.protobuf import BYTES, MAX_VARINT_BYTES, VARINT, field_spans
from bertbench.data.formats.rows import Rows

_KINDS = {1: "bytes", 2: "floats", 3: "integers"}


def feature_bytes(record: bytes) -> dict[str, tuple[str, bytes]]:
    """Return kind and encoded values of the features of one Example; `integers` decodes many at once.

    Raises ValueError if the bytes aren't such a message.
    """
    features = {}
    for number, wire, start, end in field_spans(record, 0, len(record)):
        if (number, wire) != (1, BYTES):
            raise ValueError(f"field {number} of wire type {wire} outside Features")
        for _, _, entry_start, entry_end in field_spans(record, start, end):
            name, feature = b"", (0, 0)
            for key, _, at, until in field_spans(record, entry_start, entry_end):
                if key == 1:
                    name = record[at:until]
                elif key == 2:
                    feature = (at, until)
            features[name.decode()] = _feature(record, *feature)
    return features


def integers(chunks: Sequence[bytes]) -> Rows:
    """Decode the varints of each chunk: 64-bit integers. Raises ValueError if one is cut short or too long."""
    data = np.frombuffer(b"".join(chunks), np.uint8)
    bounds = np.cumsum([len(chunk) for chunk in chunks])
    if any(chunk and chunk[-1] >= 0x80 for chunk in chunks):
        raise ValueError("its last byte is missing")
    lasts = np.flatnonzero(data < 0x80)
    firsts = np.concatenate(([0], lasts[:-1] + 1))[: len(lasts)]
    lengths = lasts - firsts + 1
    if lengths.size and lengths.max() > MAX_VARINT_BYTES:
        raise ValueError(f"it has more than {MAX_VARINT_BYTES} bytes")
    values = (data[firsts] & 0x7F).astype(np.uint64)
    longer = np.flatnonzero(lengths > 1)
    for place in range(1, MAX_VARINT_BYTES):
        bits = (data[firsts[longer] + place] & 0x7F).astype(np.uint64)
        values[longer] |= bits << np.uint64(7 * place)
        longer = longer[lengths[longer] > place + 1]
    ends = np.searchsorted(lasts, bounds)  # values that end before each bound
    return Rows(values.view(np.int64), np.diff(ends, prepend=0))


def _feature(record: bytes, start: int, end: int) -> tuple[str, bytes]:
    kind = _KINDS[1]
    values = []
    for number, _, list_start, list_end in field_spans(record, start, end):
        kind = _KINDS.get(number, _KINDS[1])
        for _, wire, at, until in field_spans(record, list_start, list_end):
            if kind == "integers" and wire not in (BYTES, VARINT):
                raise ValueError(f"wire type {wire} in a list of {kind}")
            values.append(record[at:until])
    return kind, b"".join(values)
