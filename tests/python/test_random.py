# SPDX-License-Identifier: Apache-2.0
"""Tests where random numbers come from. What ops make of them is tested with the ops."""

import threading

import numpy as np
import pytest

import opdock

X = np.zeros(2, np.float32)


def drawn(result):
    """Returns the (seed, offset) that the op was given."""
    high, low, offset_high, offset_low = (int(number) for number in result)
    return (high << 32) | low, (offset_high << 32) | offset_low


def test_a_seed_makes_the_runtimes_generator_begin_anew(ops):
    opdock.manual_seed(7)
    assert [drawn(ops.py_draw(X, 5)) for _ in range(2)] == [(7, 0), (7, 5)]
    opdock.manual_seed(7)
    assert drawn(ops.py_draw(X, 5)) == (7, 0)
    opdock.manual_seed(-1)
    assert drawn(ops.py_draw(X, 1)) == (2**64 - 1, 0)


def test_a_generator_is_advanced_and_its_state_can_be_set(ops):
    generator = opdock.Generator(3, offset=2**33)
    assert drawn(ops.py_draw(X, 10, generator=generator)) == (3, 2**33)
    assert generator.offset == 2**33 + 10
    generator.seed, generator.offset = 4, 1
    assert drawn(ops.py_draw(X, 1, generator=generator)) == (4, 1)
    assert repr(generator) == "opdock.Generator(4, offset=2)"
    assert drawn(ops.py_draw(X, 1, generator=9)) == (9, 0)
    assert drawn(ops.py_draw(X, 1, generator=(9, 6))) == (9, 6)
    with pytest.raises(opdock.ArgumentError, match="'seed'"):
        opdock.Generator("3")
    with pytest.raises(
        opdock.ArgumentError, match=r"wanted an opdock.Generator, a torch.Generator"
    ):
        ops.py_draw(X, 1, generator=1.5)


def test_threads_that_share_a_generator_get_numbers_of_their_own(ops):
    generator, found = opdock.Generator(1), []

    def draw():
        found.extend(drawn(ops.py_draw(X, 3, generator=generator))[1] for _ in range(200))

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(0, 3 * 1600, 3))


def test_with_torch_tensors_torchs_own_generator_counts(ops, torch):
    x = torch.zeros(2)
    torch.manual_seed(5)
    first = [drawn(ops.py_draw(x, 5)) for _ in range(3)]
    torch.manual_seed(5)
    assert [drawn(ops.py_draw(x, 5)) for _ in range(3)] == first
    assert len(set(first)) == 3
    opdock.manual_seed(5)  # has no effect on it
    assert drawn(ops.py_draw(x, 5)) not in first
    mine = torch.Generator().manual_seed(11)
    again = torch.Generator().manual_seed(11)
    one = drawn(ops.py_draw(x, 5, generator=mine))
    assert one == drawn(ops.py_draw(X, 5, generator=again)) != drawn(ops.py_draw(x, 5))
    assert drawn(ops.py_draw(x, 1, generator=opdock.Generator(6))) == (6, 0)


def test_an_op_without_a_fresh_result_draws_too(ops, torch):
    x = np.zeros(4, np.int64)
    opdock.manual_seed(8)
    assert ops.py_draw_(x, 3) is x and drawn(x) == (8, 0)
    y = torch.zeros(4, dtype=torch.int64)
    torch.manual_seed(1)
    ops.py_draw_(y, 3)
    one = drawn(y)
    torch.manual_seed(1)
    ops.py_draw_(y, 3)
    assert drawn(y) == one
