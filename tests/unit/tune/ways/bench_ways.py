# SPDX-License-Identifier: Apache-2.0
"""Benchmarks calls of `ways` that leave a choice of variant, and some that do not."""

import torch

import opdock

SHAPES = {"cpu": [(2, 3)], "cuda": [(2, 3)]}
DTYPES = [torch.float32]


def candidates(x):
    yield "ways", "opdock", 1, lambda: opdock.ops.ways(x)
    yield "ways_9", "opdock", 1, lambda: opdock.ops.ways(x, 9)
    yield "no_choice", "opdock", 1, lambda: opdock.ops.ways(x, 0)
    yield "ways", "torch", 1, lambda: 1 / 0
    yield "ways_double", "opdock", 1, lambda: opdock.ops.ways(x.double())
