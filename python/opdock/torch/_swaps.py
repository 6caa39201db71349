# SPDX-License-Identifier: Apache-2.0
"""The functions and layers of torch for which patch() knows a faster one, and their stand-ins.

A stand-in has the arguments of what it stands for, and makes each call by Opdock's op or by torch,
whichever was measured to be faster for such shapes.
"""

import copy
import itertools
import re

import torch
from torch.nn import functional as F

from opdock.torch import _choice, _sdpa
from opdock.torch import _functional as ours

_numbers = itertools.count()
refused = {}  #: kind -> the reasons for which calls were left to torch, in this process


class Swap:
    """A stand-in. kind: its name in reports; op: the op that it calls; takes(…): whether the op can
    make a call; more(…): what else than rows and their length decides about its speed; why_not(…):
    why the op cannot make a call that takes() refuses, for reports."""

    def __init__(self, kind, op, mine, theirs, takes, more=None, why_not=None):
        self.kind, self.op = kind, op
        self.mine, self.theirs, self.takes = mine, theirs, takes
        self._more, self._why_not = more, why_not
        self.number = next(_numbers)  # names the stand-in in graphs, which take no objects
        self.last = None  # the choice of the last call

    def more(self, args, keywords):
        return None if self._more is None else self._more(*args, **keywords)

    def both(self):
        """Returns what is measured, as choose() numbers it."""
        return (_choice.OWN, self.theirs), (_choice.OPDOCK, self.mine)

    def __call__(self, *args, **keywords):
        x = args[0] if args else next(iter(keywords.values()))
        # Other tensors, such as DTensor, have functions of their own for torch's ops, and none for
        # Opdock's.
        if type(x) is not torch.Tensor and type(x) is not torch.nn.Parameter:
            return self.theirs(*args, **keywords)
        if self.takes(*args, **keywords):
            if _choice.is_faster(self, x, args, keywords):
                return self.mine(*args, **keywords)
        elif self._why_not is not None and not torch.compiler.is_compiling():
            refused.setdefault(self.kind, set()).add(self._why_not(*args, **keywords))
        return self.theirs(*args, **keywords)


def _takes_torch_softmax(input, dim, dtype=None):
    return ours.takes_softmax(input, dim, dtype=dtype)


def _is_unhooked(*layers):
    """Returns whether a layer's call is its forward(): hooks would not see a call by an op."""
    return not any(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        for layer in layers
    )


def _function(kind, theirs, mine=None, takes=None, more=None):
    mine = getattr(ours, kind) if mine is None else mine
    takes = getattr(ours, f"takes_{kind}") if takes is None else takes
    return Swap(kind, kind, mine, theirs, takes, more)


#: torch's functions, each with its stand-in.
FUNCTIONS = {
    F.layer_norm: _function("layer_norm", F.layer_norm),
    F.rms_norm: _function("rms_norm", F.rms_norm),
    torch.rms_norm: _function("rms_norm", torch.rms_norm),
    F.silu: _function("silu", F.silu),
    F.softmax: _function("softmax", F.softmax),
    torch.softmax: _function(
        "softmax",
        torch.softmax,
        lambda input, dim, dtype=None: ours.softmax(input, dim),
        _takes_torch_softmax,
    ),
    F.log_softmax: _function("log_softmax", F.log_softmax),
    torch.log_softmax: _function(
        "log_softmax",
        torch.log_softmax,
        lambda input, dim, dtype=None: ours.log_softmax(input, dim),
        _takes_torch_softmax,
    ),
    F.cross_entropy: _function("cross_entropy", F.cross_entropy),
    F.scaled_dot_product_attention: Swap(
        "attention",
        "attention",
        _sdpa.attention,
        F.scaled_dot_product_attention,
        _sdpa.takes,
        _sdpa.situation,
        _sdpa.why_not,
    ),
}


# Activations, and what surrounds them


def _gated(kind, op, mine, activation):
    def theirs(gate, up):
        return activation(gate) * up

    return Swap(kind, op, mine, theirs, ours.takes_gated)


def _linear_gelu(approximate):
    def mine(x, linear, activation):
        return ours.bias_gelu(F.linear(x, linear.weight), linear.bias, approximate)

    def theirs(x, linear, activation):
        return activation(linear(x))

    def takes(x, linear, activation):
        return (
            ours.takes_rows(x)
            and linear.weight.dtype == x.dtype
            and not torch.is_autocast_enabled(x.device.type)
            and _is_unhooked(linear, activation)
        )

    def more(x, linear, activation):
        return linear.out_features

    return Swap("linear_gelu", "bias_gelu", mine, theirs, takes, more)


def _gelu(approximate):
    return lambda x: F.gelu(x, approximate=approximate)


ACTIVATIONS = {"silu": F.silu, "gelu": _gelu("none"), "gelu_tanh": _gelu("tanh")}
GATED = {
    "silu": _gated("silu_mul", "silu_mul", ours.silu_mul, F.silu),
    "gelu": _gated("gelu_mul", "gelu_mul", ours.gelu_mul, _gelu("none")),
    "gelu_tanh": _gated(
        "gelu_mul_tanh", "gelu_mul", lambda g, u: ours.gelu_mul(g, u, "tanh"), _gelu("tanh")
    ),
}
LINEAR = {"gelu": _linear_gelu("none"), "gelu_tanh": _linear_gelu("tanh")}


def activation_of(layer):
    """Returns which of ACTIVATIONS a layer computes, or None. A layer that is not torch's own is
    tried on numbers."""
    if type(layer) is torch.nn.SiLU:
        return None if layer.inplace else "silu"
    if type(layer) is torch.nn.GELU:
        return "gelu" if layer.approximate == "none" else "gelu_tanh"
    is_named = re.search("silu|swish|gelu", type(layer).__name__, re.IGNORECASE)
    if not is_named or any(True for _ in (*layer.parameters(), *layer.buffers())):
        return None
    x = torch.linspace(-8, 8, 257, dtype=torch.float64)
    for name, function in ACTIVATIONS.items():
        if _gives(lambda x: layer.forward(x), x, function(x), 1e-6):
            return name
    return None


def _gives(function, x, wanted, bound):
    """Returns whether function(x) is what is wanted; False if it cannot be called so."""
    try:
        with torch.no_grad():
            found = function(x)
        return found.shape == wanted.shape and bool((found - wanted).abs().max() <= bound)
    except Exception:
        return False


# Norms


def eps_of(norm):
    """Returns what a norm adds to the variance, or None."""
    for name in ("variance_epsilon", "eps", "epsilon"):
        if isinstance(getattr(norm, name, None), float):
            return getattr(norm, name)
    return None


def original(layer):
    """Returns the class that a layer had before patch()."""
    return getattr(type(layer), "_opdock_original", type(layer))


def norm_of(layer):
    """Returns "layer" or "rms" for a layer that normalises the last dimension as an op does, else
    None. A class that is not torch's but is called …RMSNorm is tried on numbers: some multiply by
    1 + weight."""
    cls = original(layer)
    if cls is torch.nn.LayerNorm:
        return "layer" if len(layer.normalized_shape) == 1 else None
    if cls is torch.nn.RMSNorm:
        return "rms" if len(layer.normalized_shape) == 1 and layer.eps is not None else None
    return "rms" if "RMSNorm" in cls.__name__ and _is_rms_norm(layer, cls) else None


def _is_rms_norm(layer, cls):
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.dim() != 1 or weight.is_meta:
        return False
    if eps_of(layer) is None or len([*layer.parameters(), *layer.buffers()]) != 1:
        return False
    one = copy.copy(layer)
    one._parameters = {"weight": weight.detach().float().cpu()}
    # Rows of ordinary size, and of a size where what is added to the variance counts.
    x = torch.sin(torch.arange(2.0 * weight.numel())).view(2, -1)
    x = x * torch.tensor([[1.0], [eps_of(layer) ** 0.5]])
    wanted = F.rms_norm(x, weight.shape, one._parameters["weight"], eps_of(layer))
    bound = 1e-4 * max(1.0, float(one._parameters["weight"].abs().max()))
    return _gives(lambda x: cls.forward(one, x), x, wanted, bound)


def rms_norm_of_class(cls):
    """Returns the stand-in for forward() of a class that norm_of() has tried."""

    def mine(x, layer):
        return ours.rms_norm(x, layer.weight.shape, layer.weight, eps_of(layer))

    def theirs(x, layer):
        return cls.forward(layer, x)

    def takes(x, layer):
        return layer.weight.dtype == x.dtype and ours.takes_rms_norm(
            x, layer.weight.shape, layer.weight
        )

    return Swap("rms_norm", "rms_norm", mine, theirs, takes, lambda x, _: cls.__name__)


def _norm_of_sum(a, b, norm):
    total = a + b
    return norm(total), total


def _takes_norm_of_sum(a, b, norm):
    bias = getattr(norm, "bias", None)
    return (
        isinstance(b, torch.Tensor)
        and _is_unhooked(norm)
        and ours.takes_add_norm(a, b, norm.weight, bias)
        and a.shape[-1:] == norm.weight.shape
    )


def _add_norm(kind):
    is_layer = kind == "layer"

    def mine(a, b, norm):
        if is_layer:
            return ours.add_layer_norm(a, b, norm.weight, norm.bias, norm.eps)
        return ours.add_rms_norm(a, b, norm.weight, eps_of(norm))

    name = f"add_{kind}_norm"
    # A foreign class is slower than torch's rms_norm: they are measured one by one.
    return Swap(
        name,
        name,
        mine,
        _norm_of_sum,
        _takes_norm_of_sum,
        lambda a, b, norm: None if is_layer else original(norm).__name__,
    )


NORMS = {"layer": _add_norm("layer"), "rms": _add_norm("rms")}


# Rotary embeddings of transformers' models


def rotary_of(function):
    """Returns the stand-in for a function like transformers' apply_rotary_pos_emb, or None if it
    computes something else. It is tried on numbers, in the two forms that there are: with tables
    and the tokens' positions in them, or with the rows of the tables for each token."""
    torch_state = torch.random.get_rng_state()
    q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 1, 3, 8)
    torch.random.set_rng_state(torch_state)
    angles = torch.arange(1.0, 21.0).view(5, 4).repeat(1, 2)
    cos, sin = angles.cos(), angles.sin()
    positions = torch.tensor([[2, 0, 4]])
    wanted = _rotated(q, k, cos[positions], sin[positions])
    forms = (
        (_mine_by_rows, _takes_rows_of_tables, (q, k, cos[positions], sin[positions])),
        (_mine_by_positions, _takes_tables, (q, k, cos, sin, positions)),
    )
    for mine, takes, args in forms:
        if _gives(lambda _: torch.cat([*function(*args)], 1), None, torch.cat(wanted, 1), 1e-5):  # noqa: B023
            return Swap("rope", "rope", mine, function, takes, _heads)
    return None


def _rotated(q, k, cos, sin):
    """Returns the definition that a function is compared with: pairs are half a head apart."""
    cos, sin = cos[:, None], sin[:, None]
    half = q.shape[-1] // 2
    return [x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin for x in (q, k)]


def _heads(q, k, *_):
    return q.shape[1]


def _takes_both(q, k, cos, sin):
    return (
        q.dim() == k.dim() == 4
        and ours.takes_rows(q)
        and q.dtype == k.dtype
        and cos.dtype in (torch.float32, q.dtype)
        and cos.shape[-1] == q.shape[-1]
        and not (torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad))
    )


def _takes_rows_of_tables(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
    return (
        unsqueeze_dim == 1
        and cos.dim() == 3
        and _takes_both(q, k, cos, sin)
        and cos.shape[0] in (1, q.shape[0])
        and cos.shape[1] == q.shape[2]
    )


def _takes_tables(q, k, cos, sin, position_ids, unsqueeze_dim=1):
    return unsqueeze_dim == 1 and cos.dim() == 2 and _takes_both(q, k, cos, sin)


def _turn(q, k, cos, sin, positions):
    """Calls the op. q, k: [batch, heads, tokens, D], as the model has them."""
    half = cos.shape[-1] // 2
    q, k = (ours.with_rows(x.transpose(1, 2)) for x in (q, k))
    cos, sin = ours.with_rows(cos[..., :half]), ours.with_rows(sin[..., :half])
    return [x.transpose(1, 2) for x in torch.ops.opdock.rope(q, k, cos, sin, positions)]


def _mine_by_positions(q, k, cos, sin, position_ids, unsqueeze_dim=1):
    # One row of positions may serve all rows of the batch.
    positions = position_ids[0] if position_ids.shape[0] == 1 else position_ids
    return tuple(_turn(q, k, cos, sin, positions))


def _mine_by_rows(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
    if cos.shape[0] == 1:
        return tuple(_turn(q, k, cos[0], sin[0], None))
    batch, tokens = q.shape[0], q.shape[2]
    rows = torch.arange(batch * tokens, device=q.device).view(batch, tokens)
    return tuple(_turn(q, k, cos.flatten(0, 1), sin.flatten(0, 1), rows))
