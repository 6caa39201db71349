# SPDX-License-Identifier: Apache-2.0
"""The memory layout of a region's results: the strides that the fake ones had."""

from opdock.torch.backend._values import hint, value


def order_of(node):
    """Returns the dimensions from the outermost to the innermost in memory of a tensor without
    gaps, or None if its memory has gaps or overlaps."""
    tensor = value(node)
    sizes = [hint(size) for size in tensor.shape]
    strides = [hint(stride) for stride in tensor.stride()]
    # Among dimensions of one element the order of the shape counts.
    order = sorted(range(len(sizes)), key=lambda d: (-strides[d], sizes[d] != 1, d))
    order = _with_units_in_place(order, sizes)
    wanted = 1
    for d in reversed(order):
        if sizes[d] > 1 and strides[d] != wanted:
            return None
        wanted *= max(sizes[d], 1)
    return tuple(order)


def _with_units_in_place(order, sizes):
    """Returns the order with dimensions of one element, whose strides say nothing, where they stand
    in the shape, if the others are in the shape's order."""
    others = [d for d in order if sizes[d] != 1]
    return list(range(len(sizes))) if others == sorted(others) else order


def is_plain(order):
    return order == tuple(range(len(order)))


def is_contiguous(node):
    """Returns whether a tensor is contiguous for the sizes of the example, without a guard. False
    if there is no example."""
    try:
        order = order_of(node)
    except ValueError:
        return False
    return order is not None and is_plain(order)


def inverse(order):
    found = [0] * len(order)
    for place, d in enumerate(order):
        found[d] = place
    return tuple(found)
