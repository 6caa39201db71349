# SPDX-License-Identifier: Apache-2.0
"""The functions that opdock.fuse() knows of arrays as such: their dtypes, shapes and parts."""

from opdock import _fuse_trace
from opdock._fuse_calls import handler
from opdock._fuse_proxies import Number

# ---- dtypes


@handler("astype")
def _astype(one, x, dtype, copy=True, **kwargs):
    sample = one.sample()
    return one.tracer.cast(x, one.tracer.dtype_of(sample), sample)


@handler("to type type_as")
def _to(one, x, y=None, non_blocking=False, copy=False, **kwargs):
    y = kwargs.get("dtype", y)
    if type(y).__name__ not in ("dtype", "TorchArray"):
        one.tracer.refuse(
            f"{one.name!r} with {y!r}", "a dtype", "copy between devices before the call"
        )
    sample = one.sample()
    return one.tracer.cast(x, one.tracer.dtype_of(sample), sample)


@handler("float half bfloat16 double int long short bool byte char")
def _to_named(one, x):
    sample = one.sample()
    return one.tracer.cast(x, one.tracer.dtype_of(sample), sample)


@handler("zeros_like ones_like full_like")
def _like(one, x, fill_value=None, *, dtype=None):
    node = x._open()
    sample = one.sample()
    found = one.tracer.dtype_of(sample)
    value = {"zeros_like": 0, "ones_like": 1}.get(one.name, fill_value)
    value = one.number("fill_value", value)
    value = {0: bool, 1: int, 2: float}[_fuse_trace.category(found)](value)
    text = _fuse_trace.literal(one.tracer, value)
    new = _fuse_trace.Node(text, (), found, _fuse_trace.NUMBER, node.dims,
                           is_per_row=node.is_per_row, varies=False, sample=sample)  # fmt: skip
    return one.tracer.make(new)


# ---- shapes


@handler("size shape")
def _size(one, x, dim=None):
    if one.name == "size" and one.tracer.library.name != "torch":
        return x.size if dim is None else x.shape[dim]
    return x.shape if dim is None else x.shape[dim]


@handler("numel")
def _numel(one, x):
    product = 1
    for size in x.shape:
        product = product * size
    return product


@handler("dim ndim ndimension")
def _dim(one, x):
    return len(x._open().dims)


@handler("is_floating_point")
def _is_floating_point(one, x):
    return _fuse_trace.category(x._open().dtype) == 2


@handler("is_complex")
def _is_complex(one, x):
    return False


@handler("unsqueeze expand_dims")
def _unsqueeze(one, x, dim):
    rank = len(x._open().dims) + 1
    at = dim if dim >= 0 else dim + rank
    return _index(one, x, (slice(None),) * at + (None,))


@handler("squeeze")
def _squeeze(one, x, dim=None):
    node = x._open()
    if dim not in (-1, len(node.dims) - 1) or not node.dims or node.dims[-1]:
        one.tracer.refuse(
            f"squeeze({dim!r})", "squeeze(-1) of a reduction with keepdims=True",
            "squeeze the arguments before the call",
        )  # fmt: skip
    return _index(one, x, (Ellipsis, 0))


@handler("getitem")
def _getitem(one, x, index):
    return _index(one, x, tuple(index))


def _index(one, x, index):
    node = x._open()
    tracer = one.tracer
    for part in index:
        limits = (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)
        if any(type(limit) not in (int, Number, type(None), type(Ellipsis)) for limit in limits):
            tracer.refuse(
                "an index that is no number, slice, None or ...", "one of these",
                "gather before the call, or select with where()",
            )  # fmt: skip
    index = tuple(part._use() if isinstance(part, Number) else part for part in index)
    rank = len(node.dims)
    taken = sum(part is not None and part is not Ellipsis for part in index)
    if taken > rank:
        raise IndexError(f"too many indices for an array of {rank} dimensions")
    result = rank + sum(part is None for part in index) - sum(type(part) is int for part in index)
    if node.operand is not None:
        return tracer.view(node, index, result)
    whole = [part for part in index if not (isinstance(part, slice) and part == slice(None))]
    is_behind = index and index[-1] is None and (Ellipsis in index or len(index) == rank + 1)
    sample = node.sample
    if is_behind and whole in ([Ellipsis, None], [None]):
        dims = (*node.dims, frozenset())
        if node.is_per_row or not node.dims:
            return tracer.same(x, dims=dims, is_per_row=False, sample=sample[..., None])
    elif whole == [Ellipsis] or not whole:
        return tracer.same(x)
    elif whole == [Ellipsis, 0] and node.dims and not node.dims[-1] and not node.varies:
        dims = node.dims[:-1]
        return tracer.same(x, dims=dims, is_per_row=len(dims) > 0, sample=sample[..., 0])
    tracer.refuse(
        "an index of a computed array", "x[..., None] behind a reduction, or a view of an argument",
        "index the arguments instead",
    )  # fmt: skip


@handler("transpose permute swapaxes swapdims")
def _transpose(one, x, *axes):
    node = x._open()
    if node.operand is None:
        one.tracer.refuse(f"{one.name!r} of a computed array", "that of an argument",
                          "transpose the arguments instead")  # fmt: skip
    sample = one.sample()
    axes = tuple(axes[0]) if len(axes) == 1 and not isinstance(axes[0], int) else axes
    text = f"{one.name}({', '.join(map(str, axes))})"
    return one.tracer.view(node, text, len(sample.shape))


@handler("chunk")
def _chunk(one, x, chunks, dim=0):
    node = x._open()
    if node.operand is None:
        one.tracer.refuse("'chunk' of a computed array", "that of an argument",
                          "split the arguments instead")  # fmt: skip
    size = int(one.tracer.size(node, dim))
    at = dim if dim >= 0 else dim + len(node.dims)
    step = -(-size // int(chunks))
    places = range(0, size, step) if step else [0]
    before = (slice(None),) * at
    return tuple(x[(*before, slice(begin, begin + step))] for begin in places)
