# SPDX-License-Identifier: Apache-2.0
"""The random numbers that plugin.h defines, in NumPy: the oracle of the tests of ops that draw
some."""

import numpy as np


def philox(counter, key):
    """Returns Philox4x32-10 of counters, an array [4, n], with a key of two words: an array [4,
    n]."""
    c = np.asarray(counter, dtype=np.uint64)
    low, word = np.uint64(0xFFFFFFFF), np.uint64(32)
    for turn in range(10):
        k0 = np.uint64((key[0] + turn * 0x9E3779B9) % 2**32)
        k1 = np.uint64((key[1] + turn * 0xBB67AE85) % 2**32)
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = np.stack([b >> word ^ c[1] ^ k0, b & low, a >> word ^ c[3] ^ k1, a & low])
    return c


def numbers(seed, first, count):
    """Returns numbers first … first + count - 1 of the seed, as plugin.h defines them."""
    n = np.arange(count, dtype=np.uint64) + np.uint64(first)  # wraps
    block = n >> np.uint64(2)
    zero = np.zeros_like(block)
    words = philox(
        [block & np.uint64(0xFFFFFFFF), block >> np.uint64(32), zero, zero],
        (seed & 0xFFFFFFFF, seed >> 32),
    )
    return words[(n & np.uint64(3)).astype(int), np.arange(count)]
