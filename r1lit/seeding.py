"""Seeds as a function of counters, never of history.

Lightning checkpoints no generator state, so nothing here keeps any: a stream is named by what it
is for and by the counters it depends on, and is the same before and after a resume.
"""

from __future__ import annotations

import hashlib
import operator

import numpy as np


def generator(seed: int, *counters: int | str) -> np.random.Generator:
    """Return the generator named by ``seed`` and ``counters``, always at its start.

    The name is hashed to a 128-bit Philox key, so streams of neighbouring counters are independent.

    >>> a, b = generator(1, "order", 3), generator(1, "order", 3)
    >>> bool(a.random() == b.random())
    True
    """
    named = (f"str:{c}" if isinstance(c, str) else f"int:{operator.index(c)}" for c in counters)
    name = "\x1f".join([str(operator.index(seed)), *named])
    key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))


def name_of(*counters: int | str, num_bytes: int = 7) -> int:
    """Return a name for random numbers, a hash of counters; below 2 ** (8 ``num_bytes``)."""
    digest = hashlib.blake2b(repr(counters).encode(), digest_size=num_bytes).digest()
    return int.from_bytes(digest, "big")


def permutation(size: int, seed: int, *counters: int | str) -> list[int]:
    """Return a permutation of ``range(size)`` named by ``seed`` and ``counters``."""
    return generator(seed, "permutation", *counters).permutation(size).tolist()
