# SPDX-License-Identifier: Apache-2.0
"""Tests forward-mode differentiation: elementwise formulas have it, as operators and as functions;
whatever else is differentiated in this mode is an error that names the op, never zero."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional as F

import opdock
import opdock.torch

OPS = torch.ops.opdock
X, UP, BIAS = (torch.randn(*s, dtype=torch.float64) for s in ((3, 4), (3, 4), (4,)))
OUTER = opdock.formula("exp(x) * sin(y)", "outer(Tensor x, Tensor y) -> Tensor")
#: name -> (the op, the same in torch's functions, arguments)
CALLS = {
    "silu": (OPS.silu, F.silu, (X,)),
    "silu_mul": (OPS.silu_mul, lambda gate, up: F.silu(gate) * up, (X, UP)),
    "gelu_mul": (OPS.gelu_mul, lambda gate, up: F.gelu(gate) * up, (X, UP)),
    "bias_add": (OPS.bias_add, torch.add, (X, BIAS)),
    "bias_gelu": (OPS.bias_gelu, lambda x, b: F.gelu(x + b, approximate="tanh"), (X, BIAS)),
    "bias_relu": (OPS.bias_relu, lambda x, b: F.relu(x + b), (X, BIAS)),
    "residual_add": (
        lambda x, y, b: OPS.residual_add(x, y, y, b, divisor=2.0),
        lambda x, y, b: x + (y + y + b) / 2,
        (X, UP, BIAS),
    ),
    "outer": (
        opdock.torch.register(OUTER),
        lambda x, y: x.exp() * y.sin(),
        (X[:, :1].contiguous(), BIAS),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_tangents_are_those_of_torch(name):
    ours, theirs, args = CALLS[name]
    tangents = tuple(map(torch.randn_like, args))
    found, wanted = (torch.func.jvp(f, args, tangents) for f in (ours, theirs))
    torch.testing.assert_close(found, wanted)
    found, wanted = (torch.func.jacfwd(f)(*args) for f in (ours, theirs))  # under vmap
    torch.testing.assert_close(found, wanted)
    args = [x.clone().requires_grad_() for x in args]
    assert torch.autograd.gradcheck(ours, args, check_forward_ad=True)


@pytest.mark.parametrize("place", [0, 1])
def test_one_argument_has_a_tangent(place):
    args = [X.clone().requires_grad_(), BIAS]
    tangents = [torch.zeros_like(X), torch.zeros_like(BIAS)]
    tangents[place] += 1
    with forward_ad.dual_level():
        args[place] = forward_ad.make_dual(args[place], tangents[place])
        result = OPS.bias_gelu(*args)
        assert result.requires_grad
        found = forward_ad.unpack_dual(result).tangent.detach()
    wanted = torch.func.jvp(CALLS["bias_gelu"][1], (X, BIAS), tuple(tangents))[1]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    "call",
    [
        opdock.formula("gate * sigmoid(gate) * up"),
        opdock.fuse(lambda gate, up: F.silu(gate) * up),
    ],
    ids=["formula", "fuse"],
)
def test_functions(call):
    wanted = torch.func.jvp(CALLS["silu_mul"][1], (X, UP), (UP, X))
    with forward_ad.dual_level():
        result = call(forward_ad.make_dual(X, UP), forward_ad.make_dual(UP, X))
        found = tuple(forward_ad.unpack_dual(result))
    torch.testing.assert_close(found, wanted)
    args = X.clone().requires_grad_(), UP.clone().requires_grad_()
    assert torch.autograd.gradcheck(call, args, check_forward_ad=True)


def test_functions_that_refuse_tangents():
    found = "found a tensor with a tangent.*only elementwise formulas"
    along = opdock.formula("x - mean(x)", "centred(Tensor x) -> Tensor")
    two = opdock.formula("return x, x * x", "powers(Tensor x) -> (Tensor, Tensor)")
    silu = opdock.formula("silu(x)", "own_silu(Tensor x) -> Tensor")
    with forward_ad.dual_level():
        x = forward_ad.make_dual(X, UP)
        for function in (along, two):
            with pytest.raises(opdock.UnsupportedError, match=f"^{function.__name__}: {found}"):
                function(x)
        with pytest.raises(opdock.UnsupportedError, match="^own_silu.*requires a gradient and one"):
            silu(forward_ad.make_dual(X.clone().requires_grad_(), UP))
        with pytest.raises(opdock.UnsupportedError, match="^own_silu.*written into a tensor"):
            silu(x, out=torch.empty_like(X))


def test_a_tangent_of_another_dtype_than_the_results():
    mixed = opdock.torch.register(opdock.formula("x + y", "mixed(Tensor x, Tensor y) -> Tensor"))
    x = X.float()
    with pytest.raises(opdock.UnsupportedError, match="^mixed: found a tangent for 'x' of torch.f"):
        torch.func.jvp(lambda x: mixed(x, UP), (x,), (x,))


def pushed(x):
    return torch.func.jvp(OPS.silu, (x,), (UP,))[1]


def total(x):
    return OPS.silu(x).square().sum()


#: Derivatives of second order, and which op has none of its own.
SECOND = {
    "hessian": (lambda: torch.func.hessian(total)(X), "silu_backward: .*tangent"),
    "jvp of grad": (
        lambda: torch.func.jvp(torch.func.grad(total), (X,), (UP,)),
        "silu_backward: .*tangent",
    ),
    "jvp of jvp": (lambda: torch.func.jvp(pushed, (X,), (UP,)), "silu_backward_x: .*tangent"),
    "grad of jvp": (
        lambda: torch.func.grad(lambda x: pushed(x).sum())(X),
        "silu_backward: .*second derivative",
    ),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_are_errors(name):
    call, message = SECOND[name]
    with pytest.raises(opdock.UnsupportedError, match=f"^{message}"):
        call()


def test_the_result_may_be_changed_in_place():
    with forward_ad.dual_level():
        result = OPS.silu(forward_ad.make_dual(X, UP)).mul_(2)
        found = tuple(forward_ad.unpack_dual(result))
    wanted = torch.func.jvp(lambda x: F.silu(x) * 2, (X,), (UP,))
    torch.testing.assert_close(found, wanted)
