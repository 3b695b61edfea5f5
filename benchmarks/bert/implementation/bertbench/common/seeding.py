"""Derive a run's random streams and orders from one seed.

`derive` names streams, so that a new consumer never shifts another one's draws. `permuted` computes a random order of
any number of samples without storing it: a keyed permutation of the index. A Feistel network permutes the next power
of four; results outside the range go through it again until they are inside (cycle walking), which keeps it a
permutation. Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002.

MLPerf's closed division asks for stock random number generators (training_rules.adoc, section on random numbers). The
network's round keys come from numpy's default generator, PCG64, seeded by the run's seed and the epoch; nothing else
in an order is random. numpy's own `permutation` would hold 1.2 GB for Wikipedia's 157 million samples on
every rank.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

SEED_BITS = 63  # torch's generators take a signed 64-bit seed
_ROUNDS = 6  # 4 suffice for a pseudo-random permutation (Luby and Rackoff); 2 more cost 1 ms per million
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def derive(seed: int, *names: str | int) -> int:
    """Return the seed of one stream, for example `derive(seed, "dropout", rank)`: 0 <= result < 2**63."""
    text = "/".join(str(part) for part in (seed, *names))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> (64 - SEED_BITS)


def permuted(indices: NDArray[np.int64], size: int, seed: int) -> NDArray[np.int64]:
    """Return the new place of each index in the permutation of 0 to size - 1 that `seed` chooses; vectorised.

    Indices must lie in 0 to size - 1.
    """
    half_bits = (max(size - 1, 1).bit_length() + 1) // 2
    keys = np.random.default_rng(seed).integers(0, 2**64, size=_ROUNDS, dtype=np.uint64)
    values = _feistel(indices.astype(np.uint64), keys, half_bits)
    outside = values >= size
    while outside.any():
        values[outside] = _feistel(values[outside], keys, half_bits)
        outside = values >= size
    return values.astype(np.int64)


def _feistel(values: NDArray[np.uint64], keys: NDArray[np.uint64], half_bits: int) -> NDArray[np.uint64]:
    """Encrypt each value of 2 * half_bits bits by a Feistel network: a permutation of all such values."""
    shift = np.uint64(half_bits)
    mask = np.uint64((1 << half_bits) - 1)
    left = values >> shift
    right = values & mask
    for key in keys:
        mixed = (right ^ key) * _MULTIPLIER
        mixed ^= mixed >> np.uint64(29)
        mixed *= _MULTIPLIER
        left, right = right, left ^ ((mixed >> np.uint64(32)) & mask)
    return (left << shift) | right
