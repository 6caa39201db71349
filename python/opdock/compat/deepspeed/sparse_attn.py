# SPDX-License-Identifier: Apache-2.0
"""The function of DeepSpeed 0.7.7's module sparse_attn, in Python: it runs once for a layout."""

import torch

from opdock._errors import InvalidArgumentError


def _squares(free, width):
    """Yields the upper left corners (row, column) of width x width squares of blocks that are all
    free, none of which overlap, row by row; takes their blocks."""
    rows, columns = free.shape
    for row in range(rows - width + 1):
        column = 0
        while column + width <= columns:
            square = free[row : row + width, column : column + width]
            if bool(square.all()):
                square.zero_()
                yield row, column
                column += width
            else:
                column += 1


def sdd_segment(layout, start_width):
    """Divides the blocks of a sparse matrix into squares, so that each can be computed at once.

    layout: int32 on the CPU, [heads, rows, columns], not 0 where there is a block; is 0 everywhere
    afterwards. start_width: the blocks along a side of the largest squares, a power of two.

    Returns a list of (width, blocks), largest width first, without those that have no square.
    blocks: int32 [squares * width * width, 4] of head, row, column and the block's number, which
    counts the blocks of the layout row by row. Raises InvalidArgumentError for other arguments.
    """
    if layout.dim() != 3 or layout.device.type != "cpu" or layout.dtype != torch.int32:
        raise InvalidArgumentError(
            f"sdd_segment(): argument 'layout': found {layout.dtype} on {layout.device} of shape "
            f"{tuple(layout.shape)}, wanted torch.int32 on the CPU of [heads, rows, columns]"
        )
    if start_width < 1 or start_width & (start_width - 1):
        raise InvalidArgumentError(
            f"sdd_segment(): argument 'start_width': found {start_width}, wanted a power of two"
        )
    free = layout != 0
    numbers = (free.flatten().cumsum(0) - 1).view(layout.shape)
    layout.zero_()
    found, width = [], start_width
    while width:
        blocks = [
            (head, row + i, column + k, int(numbers[head, row + i, column + k]))
            for head, of_head in enumerate(free)
            for row, column in _squares(of_head, width)
            for i in range(width)
            for k in range(width)
        ]
        if blocks:
            found.append((width, torch.tensor(blocks, dtype=torch.int32)))
        width //= 2
    return found
