# SPDX-License-Identifier: Apache-2.0
"""Tests each kind of tensor that is more than dense memory, as docs/reference/pytorch.md lists
them: torch.ops.opdock and opdock.ops give the right result, or an error that names the op."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import opdock
import opdock.torch

OPS = torch.ops.opdock
X = torch.arange(15.0).reshape(3, 5) / 7


def wanted(x):
    return torch.softmax(x, -1)


class Plain(torch.Tensor):
    """A subclass without functions of its own."""


class Counting(torch.Tensor):
    """A subclass that sees each call."""

    seen = ()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Counting.seen += (str(func),)
        return super().__torch_function__(func, types, args, kwargs)


class Wrapper(torch.Tensor):
    """A tensor that has its numbers in another one."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        inner = [x.inner if isinstance(x, Wrapper) else x for x in args]
        return Wrapper(func(*inner, **(kwargs or {})))


COMPLEX = torch.complex(X, X + 1)
RIGHT = {
    "requires grad": (X.clone().requires_grad_(), wanted(X)),
    "parameter": (torch.nn.Parameter(X.clone()), wanted(X)),
    "negative bit": (COMPLEX.conj().imag, wanted(-X - 1)),
    "subclass": (X.as_subclass(Plain), wanted(X)),
    "subclass with a function": (X.as_subclass(Counting), wanted(X)),
    "strided": (torch.stack([X, X], 1)[:, 1], wanted(X)),
    "empty": (X[:0], wanted(X[:0])),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_operators_are_right(kind):
    x, result = RIGHT[kind]
    found = OPS.softmax(x)
    torch.testing.assert_close(found.detach().as_subclass(torch.Tensor), result)
    if kind.startswith("subclass"):
        assert type(found) is type(x)


def test_a_wrapper_decides_itself():
    found = OPS.softmax(Wrapper(X))
    assert type(found) is Wrapper and torch.equal(found.inner, OPS.softmax(X))


def test_fake_and_meta_tensors_have_sizes_only():
    with FakeTensorMode() as mode:
        found = OPS.softmax(mode.from_tensor(X))
    assert isinstance(found, FakeTensor) and found.shape == X.shape
    found = OPS.cross_entropy(X.to("meta"), torch.zeros(3, dtype=torch.int64, device="meta"))
    assert found.is_meta and found.shape == (3,) and found.dtype == torch.float32


def test_tensors_of_inference_mode_are_written_in_it_only():
    with torch.inference_mode():
        x = torch.ones(3)
        OPS.py_add_(x)
    assert OPS.py_copy(x).tolist() == [2, 2, 2]
    with pytest.raises(opdock.OpdockError, match="found a tensor that was made in inference mode"):
        OPS.py_add_(x)
    with pytest.raises(opdock.OpdockError, match="found a tensor that was made in inference mode"):
        opdock.ops.py_add_(x)


def quantized():
    return torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)


REFUSED = {
    "sparse": (X.to_sparse, "SparseCPU", r"to_dense\(\)"),
    "sparse csr": (X.to_sparse_csr, "SparseCsrCPU", r"to_dense\(\)"),
    "quantized": (quantized, "QuantizedCPU", r"dequantize\(\)"),
    "mkldnn": (X.to_mkldnn, "MkldnnCPU", r"to_dense\(\)"),
    "nested": (lambda: torch.nested.nested_tensor([X, X]), "NestedTensorCPU", "to_padded_tensor"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", REFUSED)
def test_operators_refuse_by_name(kind):
    make, key, advice = REFUSED[kind]
    with pytest.raises(
        opdock.UnsupportedError, match=f"^softmax: found .* {key}, wanted.*{advice}"
    ):
        OPS.softmax(make())
    with pytest.raises(opdock.UnsupportedError, match=f"^silu_mul: found .* {key}, wanted"):
        OPS.silu_mul(X, make())
    with pytest.raises(opdock.OpdockError, match=r"^softmax\(\): argument 'x': found"):
        opdock.ops.softmax(make())


@pytest.mark.filterwarnings("ignore")
def test_jagged_tensors_are_refused_by_name():
    jagged = torch.nested.nested_tensor([X, X], layout=torch.jagged)
    with pytest.raises(NotImplementedError, match="opdock.softmax"):
        OPS.softmax(jagged)
    with pytest.raises(opdock.OpdockError, match=r"^softmax\(\): argument 'x': found a "):
        opdock.ops.softmax(jagged)


def in_vmap():
    torch.vmap(opdock.ops.softmax)(X)


def in_grad():
    torch.func.grad(lambda x: opdock.ops.softmax(x).sum())(X)


def with_tangent():
    with torch.autograd.forward_ad.dual_level():
        opdock.ops.softmax(torch.autograd.forward_ad.make_dual(X, X))


def fake():
    with FakeTensorMode() as mode:
        opdock.ops.softmax(mode.from_tensor(X))


RAW_REFUSED = {
    "requires grad": (lambda: opdock.ops.softmax(X.clone().requires_grad_()), "differentiation"),
    "tangent": (with_tangent, "differentiation"),
    "vmap": (in_vmap, "vmap or grad wrapper"),
    "grad": (in_grad, "vmap or grad wrapper|differentiation"),
    "fake": (fake, "FakeTensor, a tensor subclass"),
    "wrapper": (lambda: opdock.ops.softmax(Wrapper(X)), "Wrapper, a tensor subclass"),
    "function": (lambda: opdock.ops.softmax(X.as_subclass(Counting)), "Counting, a tensor subcl"),
    "negative bit": (lambda: opdock.ops.softmax(COMPLEX.conj().imag), "negative bit set"),
    "conjugate bit": (lambda: opdock.ops.py_copy(COMPLEX.conj()), "conjugate bit set"),
    "meta": (lambda: opdock.ops.softmax(X.to("meta")), "no memory"),
}


@pytest.mark.parametrize("kind", RAW_REFUSED)
def test_functions_refuse_by_name(kind):
    call, found = RAW_REFUSED[kind]
    with pytest.raises(opdock.OpdockError, match=rf"^\w+\(\): argument 'x': found.*({found})"):
        call()


def test_conjugate_bits_are_resolved():
    assert torch.equal(OPS.py_copy(COMPLEX.conj()), COMPLEX.conj().resolve_conj())


# ------------------------------------------------------------------------------------- torch.vmap


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_vmap_calls_each_element(dim):
    x = torch.randn(2, 3, 4)
    found = torch.vmap(lambda x: OPS.softmax(x, 2.0), in_dims=dim)(x)
    torch.testing.assert_close(found, torch.vmap(lambda x: wanted(2 * x), in_dims=dim)(x))


def test_vmap_of_several_arguments_lists_and_absent_results():
    x, w = torch.randn(2, 3, 4), torch.randn(4)
    found = torch.vmap(OPS.add_layer_norm, in_dims=(0, None, None))(x, x[0], w)
    for i in range(2):
        one = OPS.add_layer_norm(x[i], x[0], w)
        assert torch.equal(found[0][i], one[0]) and torch.equal(found[1][i], one[1])
    parts = torch.vmap(lambda x: OPS.split_rows(x, [1, 2]))(x)
    assert [part.shape for part in parts] == [(2, 1, 4), (2, 2, 4)]
    joined = torch.vmap(OPS.split_rows_backward, in_dims=([0, None], None))(
        [x[:, :1], x[0, 1:]], x[0]
    )
    assert torch.equal(joined[1], torch.cat([x[1, :1], x[0, 1:]]))
    both = torch.vmap(lambda x: OPS.bias_add_layer_norm(x, x, w, with_sum=False)[0])(x)
    assert torch.equal(both[1], OPS.bias_add_layer_norm(x[1], x[1], w)[0])
    twice = torch.vmap(torch.vmap(OPS.silu))(x)
    assert torch.equal(twice, OPS.silu(x))


def test_vmap_refuses_what_it_cannot_do():
    x = torch.randn(2, 3)
    with pytest.raises(opdock.UnsupportedError, match="^py_add_: found an op that writes into its"):
        torch.vmap(OPS.py_add_)(x)
    for randomness in ("error", "same"):
        with pytest.raises(
            opdock.UnsupportedError, match="^dropout: found .* randomness='different'"
        ):
            torch.vmap(OPS.dropout, randomness=randomness)(x)
    masks = torch.vmap(OPS.dropout, randomness="different")(torch.ones(2, 1000))[1]
    assert not torch.equal(masks[0], masks[1])
    with pytest.raises(opdock.UnsupportedError, match="^softmax: found a batch of no elements"):
        torch.vmap(OPS.softmax)(x[:0])


# --------------------------------------------------------------------------------- torch.autocast

F = torch.nn.functional
LIKE = {
    "softmax": (lambda x, w, v: OPS.softmax(x), lambda x, w, v: torch.softmax(x, -1)),
    "log_softmax": (lambda x, w, v: OPS.log_softmax(x), lambda x, w, v: torch.log_softmax(x, -1)),
    "layer_norm": (lambda x, w, v: OPS.layer_norm(x, v), lambda x, w, v: F.layer_norm(x, (8,), v)),
    "linear": (lambda x, w, v: OPS.linear(x, w), lambda x, w, v: F.linear(x, w)),
    "silu": (lambda x, w, v: OPS.silu(x), lambda x, w, v: F.silu(x)),
    "bias_add": (lambda x, w, v: OPS.bias_add(x, v), lambda x, w, v: x + v),
    "vector_add": (lambda x, w, v: OPS.vector_add(x, w), lambda x, w, v: x + w),
}


def devices():
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.mark.parametrize("dtypes", [(torch.float32,) * 3, (torch.bfloat16,) * 3])
@pytest.mark.parametrize("name", LIKE)
def test_autocast_gives_torchs_dtypes(name, dtypes):
    for device in devices():
        shapes = (8, 8), (8, 8), (8,)
        args = [torch.randn(s, device=device).to(d) for s, d in zip(shapes, dtypes, strict=True)]
        with torch.autocast(device, dtype=torch.bfloat16):
            found, like = (call(*args) for call in LIKE[name])
        assert found.dtype == like.dtype
        torch.testing.assert_close(found.float(), like.float(), rtol=2e-2, atol=2e-2)


def test_autocast_promotes_operands_as_torch_does():
    x, v = torch.randn(3, 8).bfloat16(), torch.randn(8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert OPS.bias_add(x, v).dtype == (x + v).dtype == torch.float32
        torch.testing.assert_close(OPS.bias_add(x, v), x + v)
    with pytest.raises(opdock.OpdockError, match="bias_add: argument 'bias'"):
        OPS.bias_add(x, v)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        assert OPS.linear(torch.randn(3, 8), torch.randn(4, 8)).dtype == torch.float32


def test_autocast_leaves_the_scale_of_a_quantised_weight():
    x, scale = torch.randn(3, 8), torch.rand(1)
    weight = torch.randint(-127, 127, (4, 8), dtype=torch.int8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = OPS.linear(x, weight, weight_scale=scale)
    like = OPS.linear(x.bfloat16(), weight, weight_scale=scale)
    torch.testing.assert_close(found, like, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["attention", "attention_forward", "attention_varlen"])
def test_autocast_leaves_the_slopes_of_attention(name):
    op, slopes = getattr(OPS, name), torch.tensor([0.3, 0.1])
    starts = [torch.tensor([0, 5], dtype=torch.int32)] * 2 if "varlen" in name else []
    q, k, v = (torch.randn(*([1] * (not starts)), 5, 2, 8) for _ in range(3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = op(q, k, v, *starts, slopes=slopes, causal=True)
    q, k, v = (x.bfloat16() for x in (q, k, v))
    wanted = op(q, k, v, *starts, slopes=slopes, causal=True)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_norms_return_the_dtype_of_their_input():
    x, w = torch.randn(3, 8).bfloat16(), torch.randn(8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, like = OPS.layer_norm(x, w), F.layer_norm(x, (8,), w)
        assert found.dtype == like.dtype == torch.bfloat16
        torch.testing.assert_close(found, like)
        both = OPS.add_layer_norm(x, x, w)
        assert [y.dtype for y in both] == [torch.bfloat16] * 2
        one, sum_ = OPS.bias_add_layer_norm(x, x, w, with_sum=False)
        assert one.dtype == torch.bfloat16 and sum_ is None


def test_autocast_is_recorded_by_autograd():
    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = OPS.layer_norm(x.bfloat16(), w)
    found.float().sum().backward()
    assert x.grad.dtype == w.grad.dtype == torch.float32
