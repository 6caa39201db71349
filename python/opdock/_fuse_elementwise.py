# SPDX-License-Identifier: Apache-2.0
"""The elementwise functions that opdock.fuse() knows.

Most are a row of FORMS: their text in a formula, and how their dtype is found. All others are
handlers."""

import operator

from opdock import _fuse_trace
from opdock._fuse_calls import emit, handler
from opdock._fuse_proxies import Array, Number

#: name -> (text, rule of Tracer.emit, names of the arguments with their defaults)
FORMS = {}


def _forms(rule, arguments, table):
    for names, text in table.items():
        for name in names.split():
            FORMS[name] = (text, rule, arguments)


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


def elementwise(one, name, *args, **kwargs):
    form, rule, arguments = FORMS[name]
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
    return emit(one, form, rule, operands)


@handler("add sub subtract rsub")
def _add(one, x, y, *, alpha=1, dtype=None):
    if dtype is not None:
        one.refuse("dtype", dtype, "the default", "convert the result")
    if one.name == "rsub":
        x, y = y, x
    sign = "+" if one.name == "add" else "-"
    if isinstance(alpha, Number) or alpha != 1:
        if one.name == "rsub":
            one.refuse("alpha", alpha, "the default", "write y - alpha * x")
        return emit(one, f"{{0}} {sign} {{2}} * {{1}}", "arithmetic", (x, y, alpha))
    return emit(one, f"{{0}} {sign} {{1}}", "arithmetic", (x, y))


@handler("div divide")
def _div(one, x, y, *, rounding_mode=None, dtype=None):
    if dtype is not None:
        one.refuse("dtype", dtype, "the default", "convert the result")
    forms = {None: ("{0} / {1}", "float"), "floor": ("{0} // {1}", "arithmetic"),
             "trunc": ("trunc({0} / {1})", "arithmetic")}  # fmt: skip
    sample = one.sample()
    form, rule = forms[rounding_mode]
    if rounding_mode == "trunc" and _fuse_trace.category(one.tracer.dtype_of(sample)) < 2:
        form = "({0} - fmod({0}, {1})) // {1}"
    return emit(one, form, rule, (x, y))


@handler("divmod")
def _divmod(one, x, y):
    return tuple(
        one.tracer.call(function, (x, y), {}) for function in (operator.floordiv, operator.mod)
    )


@handler("pos positive conj conjugate real contiguous detach ascontiguousarray")
def _same(one, x):
    one.sample()  # may raise: NumPy has no +x of bools
    return x


@handler("clone copy")
def _copy(one, x, order=None, memory_format=None):
    return one.tracer.same(x, is_copy=True)


@handler("round round_ around")
def _round(one, x, decimals=0):
    if one.number("decimals", decimals) != 0:
        one.refuse("decimals", decimals, "0", "write round(x * 100) / 100")
    return emit(one, "round({0})", "arithmetic", (x,))


@handler("where")
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


@handler("masked_fill")
def _masked_fill(one, x, mask, value):
    return one.emit("where({0}, {1}, {2})", "where", (mask, value, x))


@handler("clip clamp clamp_min clamp_max")
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
    return emit(one, f"clamp({{0}}, {', '.join(limits)})", "arithmetic", operands)


@handler("addcmul addcdiv")
def _addc(one, x, y, z, *, value=1):
    sign = "*" if one.name == "addcmul" else "/"
    rule = "arithmetic" if one.name == "addcmul" else "float"
    return one.emit(f"{{0}} + {{3}} * {{1}} {sign} {{2}}", rule, (x, y, z, value))


@handler("heaviside")
def _heaviside(one, x, y):
    return emit(one, "where(isnan({0}), {0}, where({0} == 0, {1}, where({0} > 0, 1, 0)))",
                 "arithmetic", (x, y))  # fmt: skip


# ---- activations


@handler("gelu")
def _gelu(one, x, approximate="none"):
    how = "" if approximate == "none" else ', approximate="tanh"'
    return one.emit(f"gelu({{0}}{how})", "float", (x,))


@handler("silu")
def _silu(one, x):
    return one.emit("silu({0})", "float", (x,))


@handler("softplus")
def _softplus(one, x, beta=1, threshold=20):
    beta, threshold = one.number("beta", beta), one.number("threshold", threshold)
    if beta == 1 and threshold >= 20:  # float32's softplus is x from 17 on
        is_float64 = one.tracer.dtype_of(one.sample()) == "float64"
        form = "where({0} > {1}, {0}, softplus({0}))" if is_float64 else "softplus({0})"
        return one.emit(form, "float", (x, threshold) if is_float64 else (x,))
    form = "where({0} * {1} > {2}, {0}, softplus({0} * {1}) / {1})"
    return one.emit(form, "float", (x, beta, threshold))


@handler("leaky_relu")
def _leaky_relu(one, x, negative_slope=0.01):
    return one.emit("where({0} > 0, {0}, {0} * {1})", "arithmetic", (x, negative_slope))


@handler("elu celu")
def _elu(one, x, alpha=1.0):
    form = "where({0} > 0, {0}, {1} * expm1({0}))"
    if one.name == "celu":
        form = "where({0} > 0, {0}, {1} * expm1({0} / {1}))"
    return one.emit(form, "float", (x, alpha))


@handler("hardtanh")
def _hardtanh(one, x, min_val=-1.0, max_val=1.0):
    return one.emit("clamp({0}, min={1}, max={2})", "arithmetic", (x, min_val, max_val))
