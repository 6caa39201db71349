# SPDX-License-Identifier: Apache-2.0
"""The functions that opdock.fuse() knows, by the names that NumPy, CuPy and torch give them.

An elementwise function is a row of _FORMS: its text in a formula, and how its dtype is found. All
others are handlers, called with the tracer, the library's function and the arguments.
"""

import inspect
import operator
import sys

from opdock import _fuse_trace
from opdock._fuse_proxies import Array, Number

#: name -> (text, rule of Tracer.emit, names of the arguments with their defaults)
_FORMS = {}
_HANDLERS = {}
#: The names that libraries give to the same argument.
_ALIASES = {
    "input": "x", "a": "x", "self": "x", "x1": "x", "condition": "x", "m": "x", "tensor1": "y",
    "x2": "y", "other": "y", "exponent": "y", "end": "y", "tensor2": "z",
    "a_min": "min", "a_max": "max", "axis": "dim", "keepdims": "keepdim", "ddof": "correction",
}  # fmt: skip


def _forms(rule, arguments, table):
    for names, text in table.items():
        for name in names.split():
            _FORMS[name] = (text, rule, arguments)


_forms("arithmetic", "x", {
    "neg negative": "-{0}", "abs absolute fabs": "abs({0})", "sign sgn": "sign({0})",
    "floor": "floor({0})", "ceil": "ceil({0})", "trunc fix": "trunc({0})", "rint": "round({0})",
    "square": "square({0})", "relu": "relu({0})", "relu6": "clamp({0}, min=0, max=6)",
})  # fmt: skip
_forms("float", "x", {
    "sqrt": "sqrt({0})", "rsqrt": "rsqrt({0})", "reciprocal": "reciprocal({0})", "exp": "exp({0})",
    "exp2 special_exp2": "exp2({0})", "expm1 special_expm1": "expm1({0})", "log": "log({0})",
    "log2": "log2({0})", "log10": "log10({0})", "log1p special_log1p": "log1p({0})",
    "sin": "sin({0})", "cos": "cos({0})", "tan": "tan({0})", "sinh": "sinh({0})",
    "cosh": "cosh({0})", "tanh": "tanh({0})", "arcsin asin": "asin({0})",
    "arccos acos": "acos({0})", "arctan atan": "atan({0})", "arcsinh asinh": "asinh({0})",
    "arccosh acosh": "acosh({0})", "arctanh atanh": "atanh({0})", "erf special_erf": "erf({0})",
    "erfc special_erfc": "erfc({0})", "sigmoid expit special_expit": "sigmoid({0})",
    "radians deg2rad": "{0} * 0.017453292519943295", "degrees rad2deg": "{0} * 57.29577951308232",
    "mish": "{0} * tanh(softplus({0}))", "logsigmoid log_sigmoid": "-softplus(-{0})",
    "hardsigmoid": "clamp({0} / 6 + 0.5, min=0, max=1)",
    "hardswish": "{0} * clamp({0} / 6 + 0.5, min=0, max=1)",
    "softsign": "{0} / (1 + abs({0}))", "tanhshrink": "{0} - tanh({0})",
})  # fmt: skip
_forms("test", "x", {
    "isnan": "isnan({0})", "isinf": "isinf({0})", "isfinite": "isfinite({0})",
    "signbit": "signbit({0})", "logical_not": "logical_not({0})",
})  # fmt: skip
_forms("bits", "x", {"invert bitwise_not bitwise_invert": "~{0}"})
_forms("arithmetic", "x y", {
    "mul multiply": "{0} * {1}", "floordiv floor_divide": "{0} // {1}",
    "mod remainder": "{0} % {1}", "fmod": "fmod({0}, {1})", "pow power": "{0} ** {1}",
    "maximum": "maximum({0}, {1})", "minimum": "minimum({0}, {1})",
    "fmax": "where(isnan({0}), {1}, where(isnan({1}), {0}, maximum({0}, {1})))",
    "fmin": "where(isnan({0}), {1}, where(isnan({1}), {0}, minimum({0}, {1})))",
})  # fmt: skip
_forms("float", "x y", {
    "truediv true_divide": "{0} / {1}", "arctan2 atan2": "atan2({0}, {1})",
    "hypot": "hypot({0}, {1})", "copysign": "copysign({0}, {1})",
    "logaddexp": "logaddexp({0}, {1})", "xlogy special_xlogy":
        "where(isnan({1}), {1}, where({0} == 0, 0, {0} * log({1})))",
})  # fmt: skip
_forms("bits", "x y", {
    "and_ bitwise_and": "{0} & {1}", "or_ bitwise_or": "{0} | {1}", "xor bitwise_xor": "{0} ^ {1}",
    "lshift left_shift bitwise_left_shift": "{0} << {1}",
    "rshift right_shift bitwise_right_shift": "{0} >> {1}",
})  # fmt: skip
_forms("compare", "x y", {
    "lt less": "{0} < {1}", "le less_equal": "{0} <= {1}", "gt greater": "{0} > {1}",
    "ge greater_equal": "{0} >= {1}", "eq equal": "{0} == {1}", "ne not_equal": "{0} != {1}",
})  # fmt: skip
_forms("test", "x y", {
    "logical_and": "logical_and({0}, {1})", "logical_or": "logical_or({0}, {1})",
    "logical_xor": "logical_xor({0}, {1})",
})  # fmt: skip
_forms("float", "x y z", {"lerp": "lerp({0}, {1}, {2})"})
#: What an arithmetic operation is of bools, of which formulas have none: its text by the names of
#: functions.
_OF_BOOLS = {
    **dict.fromkeys(("add", "maximum", "fmax", "max"), "{0} | {1}"),
    **dict.fromkeys(("mul", "multiply", "minimum", "fmin", "min"), "{0} & {1}"),
    **dict.fromkeys(("abs", "absolute", "sign", "floor", "ceil", "trunc", "fix"), "{0} & {0}"),
}

_REDUCTIONS = {
    "sum": ("sum({0})", "sum"), "mean": ("mean({0})", "same"), "prod": ("prod({0})", "sum"),
    "amax": ("amax({0})", "same"), "amin": ("amin({0})", "same"),
    "argmax": ("argmax({0})", "index"), "argmin": ("argmin({0})", "index"),
    "any": ("any({0})", "bool"), "all": ("all({0})", "bool"),
    "logsumexp special_logsumexp": ("logsumexp({0})", "same"),
    "count_nonzero": ("sum({0} != 0)", "index"),
}  # fmt: skip
_REDUCTIONS = {name: row for names, row in _REDUCTIONS.items() for name in names.split()}


#: Python's names of operators, and names that torch's methods have inside.
OPERATORS = {"truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift", "invert", "pos",
             "getitem", "rsub"}  # fmt: skip


def names():
    """Returns the names of all functions and methods that fuse() knows, sorted."""
    return sorted({*_FORMS, *_HANDLERS, *_REDUCTIONS})


def call(tracer, function, args, kwargs):
    """Returns what a call of a library's function comes to. Refuses what cannot be traced."""
    name = getattr(function, "__name__", None) or type(function).__name__
    name = name.removeprefix("__").removesuffix("__")
    is_in_place = name not in _FORMS and name.endswith("_") and name[:-1] in names()
    if is_in_place:
        name = name[:-1]
    known = {_ALIASES.get(key, key): value for key, value in kwargs.items()}
    if known.pop("out", None) is not None:
        tracer.refuse("out= inside of the function", "new values only", "return the result")
    if known.get("where", True) is True:
        known.pop("where", None)
    if known.get("inplace", False) is False:
        known.pop("inplace", None)
    if name == "reduce":  # a ufunc's method
        name = function.__self__.__name__
    if name in _FORMS:
        handler, needed = _elementwise, (name,)
    elif name in _REDUCTIONS:
        handler, needed = _reduction, (name,)
    elif name in _HANDLERS:
        handler, needed = _HANDLERS[name], ()
    else:
        _refuse_unknown(tracer, function, name)
    one = Call(tracer, function, name, args, kwargs)
    try:
        inspect.signature(handler).bind(one, *needed, *args, **known)
    except TypeError as error:
        tracer.refuse(
            f"a call of {_spelled(function, name)} with arguments that fuse does not know "
            f"({error})",
            "those that docs/guide/fuse.md lists",
            "leave them out",
        )
    value = handler(one, *needed, *args, **known)
    return tracer.write(args[0], value) if is_in_place else value


def _spelled(function, name):
    module = getattr(function, "__module__", None) or ""
    module = module.removeprefix("torch._C.").lstrip("_")
    return f'"{name}"' if not module or module.startswith("operator") else f'"{module}.{name}"'


def _refuse_unknown(tracer, function, name):
    import difflib

    near = difflib.get_close_matches(name, names(), n=1, cutoff=0.9)
    advice = f"{near[0]!r} is one" if near else "docs/guide/fuse.md lists them"
    if name in ("item", "tolist", "numpy", "cpu", "cuda"):
        advice = "the values are not known when the function is traced; do this outside of it"
    tracer.refuse(
        f"the function or method {name!r}",
        "one that fuse knows",
        f"{advice}, or call it before or after the fused function",
    )


class Call:
    """A call of a library's function."""

    def __init__(self, tracer, function, name, args, kwargs):
        self.tracer, self.function, self.name = tracer, function, name
        self.args, self.kwargs = args, kwargs

    def sample(self):
        """Returns what the library gives for samples."""
        kwargs = {key: value for key, value in self.kwargs.items() if key != "out"}
        return self.tracer.sample(self.function, self.args, kwargs)

    def emit(self, form, rule, operands, sample=None):
        return self.tracer.emit(form, rule, operands, self.sample() if sample is None else sample)

    def refuse(self, argument, found, wanted, advice):
        self.tracer.refuse(f"{argument}={found!r} of {self.name!r}", wanted, advice)

    def number(self, argument, x, advice="pass a number"):
        """Returns the value of a Python number that must be known; refuses arrays."""
        if isinstance(x, Array):
            self.refuse(argument, x, "a number", advice)
        return x._use() if isinstance(x, Number) else x


def _handler(names):
    def add(function):
        for name in names.split():
            _HANDLERS[name] = function
        return function

    return add


# ---- elementwise


def _elementwise(one, name, *args, **kwargs):
    form, rule, arguments = _FORMS[name]
    operands = list(args)
    for argument in arguments.split()[len(args) :]:
        if argument not in kwargs:
            break
        operands.append(kwargs.pop(argument))
    for argument, value in kwargs.items():
        if value is not None and (argument, value) not in [("casting", "same_kind")]:
            one.refuse(argument, value, "the default", "leave it out")
    if len(operands) != len(arguments.split()):
        one.sample()  # raises as the library does
        one.tracer.refuse(
            f"{len(operands)} arguments of {name!r}", f"{len(arguments.split())}", "change the call"
        )
    return _emit(one, form, rule, operands)


def _emit(one, form, rule, operands):
    tracer = one.tracer
    sample = one.sample()
    if sample is NotImplemented:
        raise TypeError(f"{one.name!r} is not possible for these operands")
    if rule == "compare":
        a, b = (_fuse_trace._samples(x) for x in operands)
        return tracer.emit(form, rule, operands, sample, tracer.library.compared_in(a, b))
    if rule == "arithmetic" and tracer.dtype_of(sample) == "bool":
        if one.name not in _OF_BOOLS:
            tracer.refuse(f"{one.name!r} of bools", "numbers", "convert them first")
        form, rule = _OF_BOOLS[one.name], "bits"
    return tracer.emit(form, rule, operands, sample)


@_handler("add sub subtract rsub")
def _add(one, x, y, *, alpha=1, dtype=None):
    if dtype is not None:
        one.refuse("dtype", dtype, "the default", "convert the result")
    if one.name == "rsub":
        x, y = y, x
    sign = "+" if one.name == "add" else "-"
    if isinstance(alpha, Number) or alpha != 1:
        if one.name == "rsub":
            one.refuse("alpha", alpha, "the default", "write y - alpha * x")
        return _emit(one, f"{{0}} {sign} {{2}} * {{1}}", "arithmetic", (x, y, alpha))
    return _emit(one, f"{{0}} {sign} {{1}}", "arithmetic", (x, y))


@_handler("div divide")
def _div(one, x, y, *, rounding_mode=None, dtype=None):
    if dtype is not None:
        one.refuse("dtype", dtype, "the default", "convert the result")
    forms = {None: ("{0} / {1}", "float"), "floor": ("{0} // {1}", "arithmetic"),
             "trunc": ("trunc({0} / {1})", "arithmetic")}  # fmt: skip
    sample = one.sample()
    form, rule = forms[rounding_mode]
    if rounding_mode == "trunc" and _fuse_trace.category(one.tracer.dtype_of(sample)) < 2:
        form = "({0} - fmod({0}, {1})) // {1}"
    return _emit(one, form, rule, (x, y))


@_handler("divmod")
def _divmod(one, x, y):
    return tuple(
        one.tracer.call(function, (x, y), {}) for function in (operator.floordiv, operator.mod)
    )


@_handler("pos positive conj conjugate real contiguous detach ascontiguousarray")
def _same(one, x):
    one.sample()  # may raise: NumPy has no +x of bools
    return x


@_handler("clone copy")
def _copy(one, x, order=None, memory_format=None):
    return one.tracer.same(x, is_copy=True)


@_handler("round round_ around")
def _round(one, x, decimals=0):
    if one.number("decimals", decimals) != 0:
        one.refuse("decimals", decimals, "0", "write round(x * 100) / 100")
    return _emit(one, "round({0})", "arithmetic", (x,))


@_handler("where")
def _where(one, x, y=None, z=None):
    if y is None or z is None:
        one.tracer.refuse("where() of one argument", "three", "its result's size depends on values")
    sample = one.sample()
    form = "where({0}, {1}, {2})"
    is_number = [not isinstance(value, Array) or value._open().is_literal for value in (y, z)]
    if all(is_number) and one.tracer.dtype_of(sample) == "float64":
        # A formula would choose between two numbers of float32.
        form = "where({0}, logical_or({0}, True).to(float64) * {1}, {2})"
        return one.tracer.emit(form, "wide where", (x, y, z), sample)
    return one.tracer.emit(form, "where", (x, y, z), sample)


@_handler("masked_fill")
def _masked_fill(one, x, mask, value):
    return one.emit("where({0}, {1}, {2})", "where", (mask, value, x))


@_handler("clip clamp clamp_min clamp_max")
def _clip(one, x, min=None, max=None, **kwargs):
    if one.name == "clamp_max":
        min, max = None, min
    for name, value in kwargs.items():
        if value is not None:
            one.refuse(name, value, "the default", "leave it out")
    operands, limits = [x], []
    for name, limit in (("min", min), ("max", max)):
        if limit is not None:
            limits.append(f"{name}={{{len(operands)}}}")
            operands.append(limit)
    return _emit(one, f"clamp({{0}}, {', '.join(limits)})", "arithmetic", operands)


@_handler("addcmul addcdiv")
def _addc(one, x, y, z, *, value=1):
    sign = "*" if one.name == "addcmul" else "/"
    rule = "arithmetic" if one.name == "addcmul" else "float"
    return one.emit(f"{{0}} + {{3}} * {{1}} {sign} {{2}}", rule, (x, y, z, value))


@_handler("heaviside")
def _heaviside(one, x, y):
    return _emit(one, "where(isnan({0}), {0}, where({0} == 0, {1}, where({0} > 0, 1, 0)))",
                 "arithmetic", (x, y))  # fmt: skip


# ---- activations


@_handler("gelu")
def _gelu(one, x, approximate="none"):
    how = "" if approximate == "none" else ', approximate="tanh"'
    return one.emit(f"gelu({{0}}{how})", "float", (x,))


@_handler("silu")
def _silu(one, x):
    return one.emit("silu({0})", "float", (x,))


@_handler("softplus")
def _softplus(one, x, beta=1, threshold=20):
    beta, threshold = one.number("beta", beta), one.number("threshold", threshold)
    if beta == 1 and threshold >= 20:  # float32's softplus is x from 17 on
        is_float64 = one.tracer.dtype_of(one.sample()) == "float64"
        form = "where({0} > {1}, {0}, softplus({0}))" if is_float64 else "softplus({0})"
        return one.emit(form, "float", (x, threshold) if is_float64 else (x,))
    form = "where({0} * {1} > {2}, {0}, softplus({0} * {1}) / {1})"
    return one.emit(form, "float", (x, beta, threshold))


@_handler("leaky_relu")
def _leaky_relu(one, x, negative_slope=0.01):
    return one.emit("where({0} > 0, {0}, {0} * {1})", "arithmetic", (x, negative_slope))


@_handler("elu celu")
def _elu(one, x, alpha=1.0):
    form = "where({0} > 0, {0}, {1} * expm1({0}))"
    if one.name == "celu":
        form = "where({0} > 0, {0}, {1} * expm1({0} / {1}))"
    return one.emit(form, "float", (x, alpha))


@_handler("hardtanh")
def _hardtanh(one, x, min_val=-1.0, max_val=1.0):
    return one.emit("clamp({0}, min={1}, max={2})", "arithmetic", (x, min_val, max_val))


# ---- rows


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


def _reduction(one, name, x, dim=None, keepdim=False, *, dtype=None, initial=None):
    if initial is not None:
        one.refuse("initial", initial, "no initial value", "combine it with the result")
    _last(one, x, dim)
    keepdim = bool(keepdim) if isinstance(keepdim, int) else False
    return _reduce(one, name, x, keepdim, one.sample(), dtype is not None)


def _reduce(one, name, x, keepdim, sample, has_dtype=False):
    is_bool = x._node.dtype == "bool"
    if is_bool:  # formulas have no largest bool
        name = {"amax": "any", "amin": "all"}.get(name, name)
    form, rule = _REDUCTIONS[name]
    if has_dtype and rule == "sum":
        rule = "same"
    if rule == "index" and is_bool:
        form = form.replace("{0}", "{0}.to(uint8)")
    return one.tracer.reduce(form, rule, x, keepdim, sample)


@_handler("max min")
def _max(one, x, dim=None, keepdim=False, *, y=None, initial=None):
    other = y if y is not None else dim
    if isinstance(other, Array):
        return _emit(one, f"{one.name}imum({{0}}, {{1}})", "arithmetic", (x, other))
    if one.tracer.library.name != "torch" or (dim is None and len(x._open().dims) == 1):
        return _reduction(one, f"a{one.name}", x, dim, keepdim, initial=initial)
    _last(one, x, dim)
    sample = one.sample()
    values = _reduce(one, f"a{one.name}", x, keepdim, sample.values)
    indices = _reduce(one, f"arg{one.name}", x, keepdim, sample.indices)
    return type(sample)((values, indices))


@_handler("var std")
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


@_handler("softmax log_softmax special_softmax special_log_softmax")
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


@_handler("layer_norm rms_norm")
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


# ---- dtypes


@_handler("astype")
def _astype(one, x, dtype, copy=True, **kwargs):
    sample = one.sample()
    return one.tracer.cast(x, one.tracer.dtype_of(sample), sample)


@_handler("to type type_as")
def _to(one, x, y=None, non_blocking=False, copy=False, **kwargs):
    y = kwargs.get("dtype", y)
    if type(y).__name__ not in ("dtype", "TorchArray"):
        one.tracer.refuse(
            f"{one.name!r} with {y!r}", "a dtype", "copy between devices before the call"
        )
    sample = one.sample()
    return one.tracer.cast(x, one.tracer.dtype_of(sample), sample)


@_handler("float half bfloat16 double int long short bool byte char")
def _to_named(one, x):
    sample = one.sample()
    return one.tracer.cast(x, one.tracer.dtype_of(sample), sample)


@_handler("zeros_like ones_like full_like")
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


@_handler("size shape")
def _size(one, x, dim=None):
    if one.name == "size" and one.tracer.library.name != "torch":
        return x.size if dim is None else x.shape[dim]
    return x.shape if dim is None else x.shape[dim]


@_handler("numel")
def _numel(one, x):
    product = 1
    for size in x.shape:
        product = product * size
    return product


@_handler("dim ndim ndimension")
def _dim(one, x):
    return len(x._open().dims)


@_handler("is_floating_point")
def _is_floating_point(one, x):
    return _fuse_trace.category(x._open().dtype) == 2


@_handler("is_complex")
def _is_complex(one, x):
    return False


@_handler("unsqueeze expand_dims")
def _unsqueeze(one, x, dim):
    rank = len(x._open().dims) + 1
    at = dim if dim >= 0 else dim + rank
    return _index(one, x, (slice(None),) * at + (None,))


@_handler("squeeze")
def _squeeze(one, x, dim=None):
    node = x._open()
    if dim not in (-1, len(node.dims) - 1) or not node.dims or node.dims[-1]:
        one.tracer.refuse(
            f"squeeze({dim!r})", "squeeze(-1) of a reduction with keepdims=True",
            "squeeze the arguments before the call",
        )  # fmt: skip
    return _index(one, x, (Ellipsis, 0))


@_handler("getitem")
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


@_handler("transpose permute swapaxes swapdims")
def _transpose(one, x, *axes):
    node = x._open()
    if node.operand is None:
        one.tracer.refuse(f"{one.name!r} of a computed array", "that of an argument",
                          "transpose the arguments instead")  # fmt: skip
    sample = one.sample()
    axes = tuple(axes[0]) if len(axes) == 1 and not isinstance(axes[0], int) else axes
    text = f"{one.name}({', '.join(map(str, axes))})"
    return one.tracer.view(node, text, len(sample.shape))


@_handler("chunk")
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
