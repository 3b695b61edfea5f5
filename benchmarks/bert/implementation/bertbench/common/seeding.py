"""Derive named random streams from one seed, so that a new consumer never shifts another one's draws."""

import hashlib

SEED_BITS = 63  # torch's generators take a signed 64-bit seed


def derive(seed: int, *names: str | int) -> int:
    """Return the seed of one stream, for example `derive(seed, "dropout", rank)`: 0 <= result < 2**63."""
    text = "/".join(str(part) for part in (seed, *names))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> (64 - SEED_BITS)
