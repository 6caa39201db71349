# SPDX-License-Identifier: Apache-2.0
"""ATen's elementwise ops as texts of formulas: what each computes for one element.

A text has {0}, {1}, … for the op's arguments in the order of its schema. The rule beside it says in
which dtype operands are computed:

    "same"     in the dtype of the result
    "compare"  in the dtype to which the operands are promoted; the result is bool
    "free"     each in its own
"""

import torch

aten = torch.ops.aten

#: Names of ATen's ops of one tensor that formulas have under the same name, by rule.
_UNARY = {
    "same": "neg abs relu sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan "
    "asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid silu floor ceil trunc",
    "free": "isnan isinf signbit logical_not bitwise_not",
}
_BINARY = {
    "same": "maximum minimum atan2 hypot copysign fmod remainder",
    "compare": "eq ne lt le gt ge",
    "free": "logical_and logical_or logical_xor",
}
_OPERATORS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "mul": "*", "div": "/",
              "true_divide": "/"}  # fmt: skip

_SIGMOID = "sigmoid({1})"
_GELU_BACKWARD = (
    "{0} * (0.5 * (1 + erf({1} * 0.7071067811865476)) "
    "+ {1} * (0.3989422804014327 * exp(-0.5 * {1} * {1})))"
)
_GELU_TANH_BACKWARD = (
    "{0} * ((sigmoid({1} * (1.5957691216057308 + 0.07135481627260025 * {1} * {1})))"
    " + {1} * ((sigmoid({1} * (1.5957691216057308 + 0.07135481627260025 * {1} * {1})))"
    " * (1 - sigmoid({1} * (1.5957691216057308 + 0.07135481627260025 * {1} * {1}))))"
    " * (1.5957691216057308 + 0.21406444881780073 * {1} * {1}))"
)


def _table():
    table = {}

    def add(name, text, rule):
        packet = getattr(aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            if "out" not in overload:
                table[getattr(packet, overload)] = text, rule

    for rule, names in _UNARY.items():
        for name in names.split():
            add(name, f"{name}({{0}})", rule)
    for rule, names in _BINARY.items():
        for name in names.split():
            add(name, f"{name}({{0}}, {{1}})", rule)
    for name, sign in _OPERATORS.items():
        add(name, f"{{0}} {sign} {{1}}", "same")
    for overload in (aten.div.Tensor_mode, aten.div.Scalar_mode):
        table.pop(overload)
    add("floor_divide", "{0} // {1}", "same")
    add("sign", "sign({0})", "same")
    add("sgn", "sign({0})", "same")
    add("threshold_backward", "where({1} <= {2}, 0, {0})", "same")
    add("sigmoid_backward", "{0} * ({1} * (1 - {1}))", "same")
    add("tanh_backward", "{0} * (1 - {1} * {1})", "same")
    add("silu_backward", f"{{0}} * ({_SIGMOID} * (1 + {{1}} * (1 - {_SIGMOID})))", "same")
    return {**table, aten.round.default: ("round({0})", "same")}


#: overload -> (text, rule)
SIMPLE = _table()


def _add(args, sign):
    text, alpha = f"{{0}} {sign} {{1}}", args[2]
    return text if alpha == 1 else text.replace("{1}", "{1} * {2}")


def _rsub(args):
    return "{1} - {0}" if args[2] == 1 else "{1} - {0} * {2}"


def _clamp(args):
    limits = [f"{name}={{{place}}}" for place, name in ((1, "min"), (2, "max"))
              if args[place] is not None]  # fmt: skip
    return f"clamp({{0}}, {', '.join(limits)})" if limits else None


def _gelu(args):
    return "gelu_tanh({0})" if args[1] == "tanh" else "gelu({0})"


def _gelu_backward(args):
    return _GELU_TANH_BACKWARD if args[2] == "tanh" else _GELU_BACKWARD


def _div_mode(args):
    return {"floor": "{0} // {1}", "trunc": "trunc({0} / {1})", None: "{0} / {1}"}[args[2]]


#: overload -> (function of the arguments that returns the text, rule). A function returns None for
#: arguments that a formula cannot have.
CHOSEN = {
    **{getattr(aten.add, o): (lambda args: _add(args, "+"), "same") for o in ("Tensor", "Scalar")},
    **{getattr(aten.sub, o): (lambda args: _add(args, "-"), "same") for o in ("Tensor", "Scalar")},
    **{getattr(aten.rsub, o): (_rsub, "same") for o in ("Tensor", "Scalar")},
    **{getattr(aten.clamp, o): (_clamp, "same") for o in ("default", "Tensor")},
    aten.clamp_min.default: (lambda args: "clamp_min({0}, {1})", "same"),
    aten.clamp_max.default: (lambda args: "clamp_max({0}, {1})", "same"),
    aten.gelu.default: (_gelu, "same"),
    aten.gelu_backward.default: (_gelu_backward, "same"),
    aten.div.Tensor_mode: (_div_mode, "same"),
    aten.where.self: (lambda args: "where({0}, {1}, {2})", "where"),
    **{getattr(aten.masked_fill, o): (lambda args: "where({1}, {2}, {0})", "fill")
       for o in ("Scalar", "Tensor")},
    **{getattr(aten.pow, o): (lambda args: _pow(args), "same")
       for o in ("Tensor_Scalar", "Tensor_Tensor", "Scalar")},
}  # fmt: skip


def _pow(args):
    exponent = args[1]
    if isinstance(exponent, (int, float)) and not isinstance(exponent, bool):
        if exponent in (1, 2, 3):
            return " * ".join(["{0}"] * int(exponent))
        if exponent == 0.5:
            return "sqrt({0})"
        if exponent == -0.5:
            return "rsqrt({0})"
        if exponent == -1:
            return "reciprocal({0})"
    return "pow({0}, {1})"


def _names(text):
    return text.split()


#: Ops that torch writes as other ops, of which formulas have texts.
DECOMPOSED = _names("""
    addcdiv addcmul binary_cross_entropy binary_cross_entropy_backward
    binary_cross_entropy_with_logits celu elu elu_backward hardsigmoid hardsigmoid_backward
    hardswish hardswish_backward hardtanh hardtanh_backward huber_loss huber_loss_backward
    leaky_relu leaky_relu_backward lerp log_sigmoid_backward log_sigmoid_forward logit mish
    mish_backward mse_loss mse_loss_backward native_dropout_backward smooth_l1_loss
    smooth_l1_loss_backward softplus softplus_backward zeros_like ones_like
    _native_batch_norm_legit _native_batch_norm_legit_no_training
""")


def decompositions():
    """Returns torch's decompositions of DECOMPOSED, as aot_autograd takes them."""
    from torch._decomp import get_decompositions

    return get_decompositions([getattr(aten, name) for name in DECOMPOSED if hasattr(aten, name)])
