# SPDX-License-Identifier: Apache-2.0
"""The functions along the last dimension that opdock.fuse() knows: reductions, softmax, norms."""

import sys

from opdock._fuse_calls import emit, handler
from opdock._fuse_proxies import Array, Number

#: name -> (text in a formula, rule of Tracer.reduce)
REDUCTIONS = {
    "sum": ("sum({0})", "sum"), "mean": ("mean({0})", "same"), "prod": ("prod({0})", "sum"),
    "amax": ("amax({0})", "same"), "amin": ("amin({0})", "same"),
    "argmax": ("argmax({0})", "index"), "argmin": ("argmin({0})", "index"),
    "any": ("any({0})", "bool"), "all": ("all({0})", "bool"),
    "logsumexp special_logsumexp": ("logsumexp({0})", "same"),
    "count_nonzero": ("sum({0} != 0)", "index"),
}  # fmt: skip
REDUCTIONS = {name: row for names, row in REDUCTIONS.items() for name in names.split()}


def _last(one, x, dim):
    """Checks that `dim` is the last dimension of x."""
    rank = len(x._open().dims)
    if isinstance(dim, (tuple, list)) and len(dim) == 1:
        dim = dim[0]
    if x._node.is_per_row or not x._node.varies:
        one.tracer.refuse(
            f"{one.name!r} of a value of which each row has one",
            "one that has a value for each column",
            "a formula reduces along the last dimension only: split the function in two",
        )
    if (dim is None and rank == 1) or (type(dim) is int and rank and dim in (-1, rank - 1)):
        return
    one.tracer.refuse(
        f"{one.name!r} along {'all dimensions' if dim is None else f'dimension {dim!r}'} of {rank}",
        "the last one",
        "pass -1, and transpose the array before the call, or reduce outside of the function",
    )


def reduction(one, name, x, dim=None, keepdim=False, *, dtype=None, initial=None):
    if initial is not None:
        one.refuse("initial", initial, "no initial value", "combine it with the result")
    _last(one, x, dim)
    keepdim = bool(keepdim) if isinstance(keepdim, int) else False
    return _reduce(one, name, x, keepdim, one.sample(), dtype is not None)


def _reduce(one, name, x, keepdim, sample, has_dtype=False):
    is_bool = x._node.dtype == "bool"
    if is_bool:  # formulas have no largest bool
        name = {"amax": "any", "amin": "all"}.get(name, name)
    form, rule = REDUCTIONS[name]
    if has_dtype and rule == "sum":
        rule = "same"
    if rule == "index" and is_bool:
        form = form.replace("{0}", "{0}.to(uint8)")
    return one.tracer.reduce(form, rule, x, keepdim, sample)


@handler("max min")
def _max(one, x, dim=None, keepdim=False, *, y=None, initial=None):
    other = y if y is not None else dim
    if isinstance(other, Array):
        return emit(one, f"{one.name}imum({{0}}, {{1}})", "arithmetic", (x, other))
    if one.tracer.library.name != "torch" or (dim is None and len(x._open().dims) == 1):
        return reduction(one, f"a{one.name}", x, dim, keepdim, initial=initial)
    _last(one, x, dim)
    sample = one.sample()
    values = _reduce(one, f"a{one.name}", x, keepdim, sample.values)
    indices = _reduce(one, f"arg{one.name}", x, keepdim, sample.indices)
    return type(sample)((values, indices))


@handler("var std")
def _var(one, x, dim=None, keepdim=False, *, correction=None, unbiased=None, dtype=None):
    if isinstance(dim, bool):  # torch.var(x, unbiased)
        dim, unbiased = None, dim
    _last(one, x, dim)
    if correction is None:
        is_torch = one.tracer.library.name == "torch"
        correction = int(is_torch if unbiased is None else unbiased)
    sample = _quiet_var(one)
    form = f"var({{0}}, correction={one.number('correction', correction)!r})"
    form = f"sqrt({form})" if one.name == "std" else form
    return one.tracer.reduce(form.replace(", correction=0", ""), "same", x, keepdim, sample)


def _quiet_var(one):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one element has no variance with a correction
        return one.sample()


@handler("softmax log_softmax special_softmax special_log_softmax")
def _softmax(one, x, dim=None, _stacklevel=3, dtype=None):
    _last(one, x, dim)
    name = one.name.removeprefix("special_")
    return one.emit(f"{name}({{0}})", "arithmetic", (x,))


def _check_norm(one, x, normalized_shape):
    """Checks that a norm is one of the last dimension."""
    shape = tuple(normalized_shape)
    size = one.tracer.size(x._open(), -1)
    if len(shape) != 1:
        one.refuse("normalized_shape", shape, "one size, that of the last dimension",
                   "flatten these dimensions before the call")  # fmt: skip
    found = shape[0]
    same = isinstance(found, Number) and isinstance(size, Number) and found._code == size._code
    if not same and int(found) != int(size):
        one.refuse("normalized_shape", shape, f"({size!r},), the last dimension", "change it")


@handler("layer_norm rms_norm")
def _norm(one, x, normalized_shape, weight=None, bias=None, eps=None):
    if one.name == "rms_norm" and bias is not None:
        bias, eps = None, bias  # its fourth argument
    _check_norm(one, x, normalized_shape)
    _last(one, x, -1)
    tracer = one.tracer
    torch = sys.modules["torch"]
    function = getattr(torch.nn.functional, one.name)
    given = [y for y in (weight, bias) if y is not None]
    sample = tracer.sample(lambda x, *rest: function(x, (1,), *rest), (x, *given), {})
    if eps is None:
        eps = 1e-5 if one.name == "layer_norm" else _rms_eps(torch, sample.dtype)
    if one.name == "layer_norm":
        form = "({0} - mean({0})) * rsqrt(var({0}) + {1})"
    else:
        form = "{0} * rsqrt(mean({0} * {0}) + {1})"
    operands = [x, eps]
    for sign, y in (("*", weight), ("+", bias)):
        if y is not None:
            form += f" {sign} {{{len(operands)}}}"
            operands.append(y)
    return tracer.emit(form, "arithmetic", operands, sample)


def _rms_eps(torch, dtype):
    """Returns the eps that this torch takes for None: that of the dtype, or of float32 for 16-bit
    floats, as its versions differ."""
    x = torch.full((1,), 2.0**-7, dtype=dtype)
    found = float(torch.nn.functional.rms_norm(x, (1,)))
    own = torch.finfo(dtype).eps
    wide = min(own, torch.finfo(torch.float32).eps)
    return min((own, wide), key=lambda eps: abs(found - 2.0**-7 / (2.0**-14 + eps) ** 0.5))
