# SPDX-License-Identifier: Apache-2.0
"""Tests autograd and torch.func through torch.ops.opdock: declared gradients are right, and what is
not declared is an error that names the op, never zero or None. Calls are recorded in C++, where a
library for this torch was built, and in Python."""

import threading

import operator_examples
import pytest
import torch
from torch.autograd import forward_ad

import opdock
import opdock.torch

pytestmark = pytest.mark.usefixtures("recorder")
OPS = torch.ops.opdock
CALLS = [*operator_examples.unique(operator_examples.differentiable())]
#: Ops of which some gradients are not declared, with a call in which one of these is asked for.
UNDECLARED = {
    "bias_add_layer_norm": lambda x: OPS.bias_add_layer_norm(x, x, torch.zeros(8)),
    "linear": lambda x: OPS.linear(x, x.flatten(0, 2)),
    "softmax": lambda x: OPS.softmax(torch.zeros(1, 2, 2, 8), 1.0, x),
    "cross_entropy_with_gradient": lambda x: OPS.cross_entropy_with_gradient(
        x.flatten(0, 2), torch.zeros(4, dtype=torch.int64)
    ),
    "pad_rows": lambda x: OPS.pad_rows(x, 3, 9),
}


def first(found):
    return found[0] if isinstance(found, tuple) else found


def wide(*shape):
    torch.manual_seed(2)
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def reference(x):
    return torch.softmax(x * 0.5, -1)


def ours(x):
    return OPS.softmax(x, 0.5)


@pytest.mark.parametrize(
    ("name", "args", "keywords"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS]
)
def test_declared_gradients(name, args, keywords):
    args = operator_examples.differentiated(args)

    def call(*args):
        torch.manual_seed(1)  # dropout draws the same numbers each time
        found = getattr(OPS, name)(*args, **keywords)
        found = found if isinstance(found, (tuple, list)) else (found,)
        return tuple(x for x in found if x is not None and x.is_floating_point())

    if not call(*args):
        pytest.skip("the call has no result")
    assert torch.autograd.gradcheck(call, args)


def test_only_what_needs_a_gradient_is_computed():
    x, weight = wide(3, 4), wide(4).detach()
    OPS.layer_norm(x, weight).sum().backward()
    assert x.grad is not None and weight.grad is None
    q, k = wide(3, 2, 8), wide(3, 1, 8)
    cosine = torch.ones(3, 4, requires_grad=True)
    with pytest.raises(
        opdock.UnsupportedError, match="rope: .*'cos'.*angles are given, not learnt"
    ):
        OPS.rope(q, k, cosine, torch.zeros(3, 4))[0].sum().backward()
    OPS.rope(q, k, cosine.detach(), torch.zeros(3, 4))[0].sum().backward()
    assert q.grad is not None and torch.equal(k.grad, torch.zeros_like(k))  # only q is used


def test_only_what_the_gradient_is_computed_from_is_kept():
    x, weight, bias = wide(3, 4), wide(4), wide(4)
    OPS.layer_norm(x, weight).mul_(2).sum().backward()  # its result is not needed
    assert x.grad is not None
    x.grad = None
    y = OPS.bias_add(x, bias)
    with torch.no_grad():
        x.mul_(2)  # its arguments are not needed
        bias.mul_(2)
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    y = OPS.layer_norm(x, weight)
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        ours(x).mul_(2).sum().backward()  # softmax's gradient is computed from its result


def test_a_gradient_that_is_not_declared_may_lack_if_nobody_asks_for_it(recorder):
    q, k = wide(3, 2, 8), wide(3, 1, 8)
    angle = torch.rand(3, 4).double().requires_grad_()
    cosine, sine = angle.cos(), angle.sin()
    result = OPS.rope(q, k, cosine, sine)[0].sum()
    if recorder:
        found = torch.autograd.grad(result, q)[0]
        other = OPS.rope(q, k, cosine.detach(), sine.detach())[0].sum()
        assert torch.equal(found, torch.autograd.grad(other, q)[0])
        return
    with pytest.raises(opdock.UnsupportedError, match="rope: .*'cos'"):
        torch.autograd.grad(result, q)  # torch does not tell Python which one is asked for


def test_a_record_is_used_once_and_then_freed():
    x = wide(3, 4)
    y = ours(x)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()
    y = ours(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()


def test_hooks_of_saved_tensors_see_them():
    x, packed = wide(3, 4), []

    def pack(tensor):
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = ours(x)
    assert len(packed) == 1 and torch.equal(packed[0], y)
    y.sum().backward()
    assert x.grad is not None


def test_threads_record_and_differentiate():
    weight, found = wide(4), []

    def work():
        for _ in range(20):
            x = torch.ones(3, 4, dtype=torch.float64, requires_grad=True)
            found.append(torch.autograd.grad(OPS.rms_norm(x, weight).sum(), (x, weight)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    assert all(torch.equal(a, found[0][0]) and torch.equal(b, found[0][1]) for a, b in found)


def test_an_op_without_results_may_be_called_with_anything():
    assert OPS.noop(wide(3)) is None


def test_calls_without_gradients_are_not_recorded():
    x = wide(3, 4)
    with torch.no_grad():
        assert not ours(x).requires_grad
    assert not ours(x.detach()).requires_grad and ours(x).requires_grad
    result, mask = OPS.dropout(x)
    assert result.requires_grad and not mask.requires_grad
    with torch.inference_mode():
        assert ours(x).is_inference()


@pytest.mark.parametrize("name", UNDECLARED)
def test_backward_without_a_gradient_is_an_error(name):
    x = torch.randn(1, 2, 2, 8, requires_grad=True)
    result = first(UNDECLARED[name](x))
    assert result.requires_grad
    with pytest.raises(opdock.UnsupportedError, match=f"^{name}: found a gradient to compute for"):
        result.sum().backward()
    assert x.grad is None


@pytest.mark.parametrize("name", UNDECLARED)
def test_func_grad_without_a_gradient_is_an_error(name):
    call = UNDECLARED[name]
    with pytest.raises(opdock.UnsupportedError, match=f"^{name}: found a gradient to compute for"):
        torch.func.grad(lambda x: first(call(x)).sum())(torch.randn(1, 2, 2, 8))


@pytest.mark.parametrize("name", [*UNDECLARED, "swiglu"])
def test_forward_mode_is_an_error(name):
    call = UNDECLARED.get(name, OPS.swiglu)
    x = torch.randn(1, 2, 2, 8)
    found = f"^{name}: found a tensor with a tangent"
    with pytest.raises(opdock.UnsupportedError, match=found):
        torch.func.jvp(call, (x,), (x,))
    with forward_ad.dual_level(), pytest.raises(opdock.UnsupportedError, match=found):
        call(forward_ad.make_dual(x, x))
    with forward_ad.dual_level():  # a tensor without a tangent is as always
        assert torch.equal(first(call(x)), first(call(x)))


def test_lists_have_their_tangents_refused():
    x = torch.randn(3)
    with forward_ad.dual_level(), pytest.raises(opdock.UnsupportedError, match="^split_rows_backw"):
        OPS.split_rows_backward([forward_ad.make_dual(x, x)], x)


def test_double_backward_is_right_or_an_error():
    x, v = wide(3, 4), wide(3, 4).detach() + 1
    (g,) = torch.autograd.grad((ours(x) * v).sum(), x, create_graph=True)
    with pytest.raises(opdock.UnsupportedError, match="^softmax_backward: found a gradient to"):
        g.square().sum().backward()
    q, k = wide(3, 2, 4), wide(3, 1, 4)
    angle = torch.rand(3, 2).double()
    # rope_backward declares its gradients: that of rope.
    assert torch.autograd.gradgradcheck(
        lambda q, k: OPS.rope(q, k, angle.cos(), angle.sin()), (q, k)
    )


def test_nested_transforms_give_no_silent_zeros():
    x = wide(3, 4).detach()

    def total(x):
        return (ours(x) * (x.detach() + 1)).sum()

    with pytest.raises(opdock.UnsupportedError, match="^softmax_backward: found a gradient to"):
        torch.func.grad(lambda x: torch.func.grad(total)(x).square().sum())(x)
    with pytest.raises(opdock.UnsupportedError, match="^softmax: found a tensor with a tangent"):
        torch.func.hessian(total)(x)
    inner = wide(3, 4)
    with pytest.raises(opdock.UnsupportedError, match="^softmax_backward: found a gradient to"):
        torch.autograd.grad(torch.func.grad(total)(inner).square().sum(), inner)
    # A declared gradient is right through two transforms: dropout_backward has its own.
    keep = x > 0

    def quadratic(x):
        return OPS.dropout_backward(x, keep, 0.5).square().sum()

    found = torch.func.jacrev(torch.func.jacrev(quadratic))(x)
    wanted = torch.func.jacrev(torch.func.jacrev(lambda x: (2 * x * keep).square().sum()))(x)
    assert torch.allclose(found, wanted) and found.abs().max() > 1


@pytest.mark.parametrize(
    "transform", [torch.func.jacrev, lambda f: torch.vmap(torch.func.jacrev(f))]
)
def test_transforms_of_declared_gradients(transform):
    x = wide(3, 5).detach()
    assert torch.allclose(transform(ours)(x), transform(reference)(x), rtol=1e-12)
    pulled = [torch.func.vjp(f, x)[1](x)[0] for f in (ours, reference)]
    assert torch.allclose(*pulled, rtol=1e-12)


def test_gradients_of_gradients_by_batches():
    x, v = wide(3, 5), torch.randn(4, 3, 5, dtype=torch.float64)
    found = torch.autograd.grad(ours(x), x, v, is_grads_batched=True)[0]
    wanted = torch.autograd.grad(reference(x), x, v, is_grads_batched=True)[0]
    assert torch.allclose(found, wanted, rtol=1e-12)


def test_ops_in_place_are_not_recorded_and_raise_the_version():
    param = torch.randn(3, requires_grad=True)
    state = [torch.zeros(3), torch.zeros(3)]
    step = torch.tensor(0.0)
    calls = [param], [torch.ones(3)], state[:1], state[1:], step
    with pytest.raises(
        opdock.UnsupportedError, match="^adam_: found a tensor that requires a grad"
    ):
        OPS.adam_(*calls)
    versions = [x._version for x in (param, *state, step)]
    with torch.no_grad():
        OPS.adam_(*calls)
    assert [x._version - v for x, v in zip((param, *state, step), versions, strict=True)] == [1] * 4
    x = torch.randn(3, requires_grad=True)
    saved = x.exp()
    OPS.py_add_(saved.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


def test_a_cache_does_not_swallow_gradients():
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8, requires_grad=True)
    caches = torch.zeros(1, 2, 1, 8), torch.zeros(1, 2, 1, 8)
    with pytest.raises(opdock.UnsupportedError, match="^append_kv: found a tensor that requires"):
        OPS.append_kv(q, k, k, *caches, torch.zeros(1, dtype=torch.int32))


FORMULAS = {
    "norm_by": (
        "x * rsqrt(mean(x * x) + eps) * w",
        "(Tensor x, Tensor w, float eps=0.1) -> Tensor",
    ),
    "two_of": ("return logsumexp(x), x * sum(w)", "(Tensor x, Tensor w) -> (Tensor, Tensor)"),
    "spread": ("gelu(x + w)", "(Tensor x, Tensor w) -> Tensor"),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name):
    text, schema = FORMULAS[name]
    op = opdock.torch.register(opdock.formula(text, name + schema))
    args = wide(2, 3, 4), wide(4)
    assert torch.autograd.gradcheck(op, args)
    assert torch.autograd.gradcheck(lambda x: op(x, args[1].detach()), args[:1])
    assert set(torch.library.opcheck(op, args).values()) == {"SUCCESS"}
    (g,) = torch.autograd.grad(first(op(*args)).sum(), args[0], create_graph=True)
    with pytest.raises(opdock.UnsupportedError, match=f"^{name}_backward.*second derivative"):
        g.square().sum().backward()
    if name != "spread":  # it is elementwise: test_forward_mode.py
        with pytest.raises(opdock.UnsupportedError, match=f"^{name}: found a tensor with a tan"):
            torch.func.jvp(lambda x: op(x, args[1].detach()), args[:1], args[:1])


def test_checkpoints_draw_the_same_numbers_again():
    x = torch.randn(1000, requires_grad=True)
    found = torch.utils.checkpoint.checkpoint(lambda x: OPS.dropout(x)[0], x, use_reentrant=False)
    found.sum().backward()
    assert torch.equal(found != 0, x.grad != 0)
