# SPDX-License-Identifier: Apache-2.0
"""Tests that repeated calls of one formula's function, for which it keeps what it found out about
layouts, compute the same as first calls."""

import threading

import pytest
import torch
from test_layouts import CASES, at_offset, numbers

import opdock
from opdock.testing import on

#: What is kept is the same for both kinds of GPUs.
pytestmark = pytest.mark.daily("cpu", "cuda")


def test_layouts_in_turn(device):
    function = on(device, opdock.formula("x * 3 + y"))
    for turn in range(3):
        for case, make in CASES.items():
            x, y = make()
            x = x + turn
            assert torch.equal(function(x, y), x * 3 + y), (turn, case)


def test_alignments_in_turn(device):
    function = on(device, opdock.formula("x * 3 + y"))
    for turn in range(2):
        for offset in (0, 1, 2, 3, 4, 0, 3):
            x, y = numbers(5, 32), numbers(5, 32) + turn
            assert torch.equal(function(at_offset(x, offset), y), x * 3 + y), (turn, offset)


def test_dtypes_and_ranks_in_turn(device):
    function = on(device, opdock.formula("x + y"))
    for turn in range(3):
        for dtype in (torch.int8, torch.int32, torch.float32, torch.float64):
            for shape in ((), (8,), (4, 8)):
                x, y = numbers(4, 8, dtype=dtype) + turn, numbers(*shape)
                found, wanted = function(x, y), x + y
                assert found.dtype == wanted.dtype and torch.equal(found, wanted)


def test_choices_and_numbers(device):
    schema = 'f(Tensor x, Tensor? y=None, *, float a=2, int b=1, bool twice=False, str way="up")'
    text = """
z = x * a + b if way == 'up' else x * a - b
z = z + y if y else z
return z * 2 if twice else z
"""
    function = on(device, opdock.formula(text, schema + " -> Tensor"))
    x, y = numbers(4, 8), numbers(8)
    for turn in range(3):
        for way in ("up", "down"):
            for twice in (False, True):
                for other in (None, y):
                    b = turn if way == "up" else -turn
                    wanted = (x * (0.5 + turn) + b + (0 if other is None else other)) * (1 + twice)
                    found = function(x, other, a=0.5 + turn, b=turn, twice=twice, way=way)
                    assert torch.equal(found, wanted), (turn, way, twice, other)


def test_more_layouts_than_are_kept(device):
    function = on(device, opdock.formula("x * 2 + y"))
    for turn in range(2):
        for rows in range(1, 150):
            x, y = numbers(rows, 6) + turn, numbers(6)
            assert torch.equal(function(x, y), x * 2 + y)


def test_results_in_turn(device):
    """The results' layouts belong to what is kept, and errors stay errors."""
    function = on(device, opdock.formula("x - y"))
    x, y = numbers(6, 8), numbers(6, 8) * 3
    for _ in range(3):
        for out in (torch.empty(6, 8), torch.empty(8, 6).t(), torch.empty(6, 16)[:, ::2]):
            assert torch.equal(function(x, y, out=out), x - y)
        with pytest.raises(opdock.InvalidArgumentError):
            function(x, y, out=torch.empty(6, 7))
        with pytest.raises(opdock.InvalidArgumentError):
            function(x, numbers(6, 7))


def test_rows_written_over_what_they_read():
    """What is right for other memory is refused for a result that all rows read."""
    function = opdock.formula("sum(x * b)")
    x, b = numbers(7, 7), numbers(7)
    wanted = (x * b).sum(-1)
    for _ in range(3):
        assert torch.equal(function(x, b, out=torch.empty(7)), wanted)
        with pytest.raises(opdock.InvalidArgumentError, match="that is written over it"):
            function(x, b, out=b)
    assert torch.equal(b, numbers(7))


def test_threads():
    """Each thread has its own layouts."""
    function = opdock.formula("x * 2 + y")
    problems = []

    def work(seed):
        try:
            for turn in range(200):
                rows = 1 + (turn * 7 + seed) % 30
                x, y = numbers(rows, 5 + seed) + turn, numbers(5 + seed)
                if not torch.equal(function(x, y), x * 2 + y):
                    problems.append((seed, turn))
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
