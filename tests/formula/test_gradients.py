# SPDX-License-Identifier: Apache-2.0
"""Tests gradients of formulas against torch's autograd in float64: of tensors that all rows share,
whose gradients are sums over rows, and of those that are broadcast in other ways."""

import pytest
import torch
from conftest import DEVICE, NIGHTLY
from torch.nn import functional
from values import FLOATS, name_of

import opdock
from opdock.testing import on


def layer_norm(x, weight, bias):
    return functional.layer_norm(x, x.shape[-1:], eps=1e-5) * weight + bias


def rms_norm(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


#: The formula, its tensors (those with "v" are a row's, the others have rows), the same in torch.
FORMULAS = {
    "bias_add": ("x + vb", "x vb", lambda x, b: x + b),
    "bias_relu": ("relu(x + vb)", "x vb", lambda x, b: torch.relu(x + b)),
    "bias_gelu": ("gelu(x + vb)", "x vb", lambda x, b: functional.gelu(x + b)),
    "bias_gelu_tanh": (
        'gelu(x + vb, approximate="tanh")',
        "x vb",
        lambda x, b: functional.gelu(x + b, approximate="tanh"),
    ),
    "silu": ("silu(x)", "x", functional.silu),
    "silu_mul": ("silu(x) * y", "x y", lambda x, y: functional.silu(x) * y),
    "gelu_mul": ("gelu(x) * y", "x y", lambda x, y: functional.gelu(x) * y),
    "layer_norm": (
        "d = x - mean(x)\nreturn d * rsqrt(mean(d * d) + 1e-5) * vw + vb",
        "x vw vb",
        layer_norm,
    ),
    "rms_norm": ("x * rsqrt(mean(x * x) + 1e-5) * vw", "x vw", rms_norm),
    "softmax": ("softmax(x)", "x", lambda x: torch.softmax(x, -1)),
}

#: One row; many; rows of a warp and of a block; with a tail; those that no block holds; 3-d.
SHAPES = [(1, 64), (5, 33), (700, 40), (3, 1000), (300, 130), (40, 3001), (2, 30, 17), (200, 1)]
LONG = (9, 8200)


def numbers(shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def transposed(x):
    return x.mT.contiguous().mT if x.ndim > 1 else x.repeat_interleave(2)[::2]


def misaligned(x):
    wide = torch.zeros(*x.shape[:-1], x.shape[-1] + 3, dtype=x.dtype)
    wide[..., 1:-2] = x
    return wide[..., 1:-2]


def check(of, shape, dtype, layout=lambda x: x):
    text, names, function = FORMULAS[of]
    names = names.split()
    shapes = [shape[-1:] if name.startswith("v") else shape for name in names]
    tensors = [layout(numbers(s, 3 + i).to(dtype)) for i, s in enumerate(shapes)]
    grad = layout(numbers(shape, 99).to(dtype))
    schema = f"{of}({', '.join('Tensor ' + name for name in names)}) -> Tensor"
    gradients = on(DEVICE, opdock.formula(text, schema).gradient(names))
    found = gradients(grad, *tensors)
    found = found if isinstance(found, tuple) else (found,)
    # Autograd gets what all rows share once for each row: its sums are those of these gradients.
    leaves = [x.double().expand(shape).clone().requires_grad_() for x in tensors]
    wanted = torch.autograd.grad(function(*leaves), leaves, grad.double())
    precise = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    for name, x, one, terms in zip(names, tensors, found, wanted, strict=True):
        assert one.shape == x.shape and one.dtype == dtype, (of, name)
        # Errors of a term are those of the row's largest numbers, and errors of a sum are those of
        # its terms and of each addition.
        size = terms.abs() + terms.abs().amax(-1, keepdim=True) + grad.double().abs()
        total = terms
        if name.startswith("v"):
            total, size = (t.reshape(-1, shape[-1]).sum(0) for t in (terms, terms.abs()))
            size = size + grad.double().abs().reshape(-1, shape[-1]).sum(0)
        limit = size * precise * 40 + total.abs() * torch.finfo(dtype).eps * 0.5
        if dtype == torch.float16:
            limit = limit + 2**-25  # half of the smallest number
        error = (one.double() - total).abs()
        assert (error <= limit).all(), (of, name, shape, error.max(), (error / limit).max())
    again = gradients(grad, *tensors)
    again = again if isinstance(again, tuple) else (again,)
    assert all(map(torch.equal, found, again)), of


#: The types of each device every day, and every second formula, which the other kind of GPU lacks.
DAILY = {"cuda": [torch.float32], "rocm": [torch.bfloat16]}
DAILY_FORMULAS = {"cuda": list(FORMULAS)[::2], "rocm": list(FORMULAS)[1::2]}


@pytest.mark.parametrize("of", FORMULAS if NIGHTLY else DAILY_FORMULAS.get(DEVICE, FORMULAS))
@pytest.mark.parametrize("dtype", FLOATS if NIGHTLY else DAILY.get(DEVICE, FLOATS), ids=name_of)
def test_gradients(of, dtype):
    for shape in SHAPES if NIGHTLY or DEVICE == "cpu" else SHAPES[1:7:2]:
        if shape[-1] > 1 or "norm" not in of:  # a row of one number has no variance
            check(of, shape, dtype)


@pytest.mark.daily("cpu", "cuda")
@pytest.mark.parametrize("of", ["bias_gelu", "layer_norm"])
@pytest.mark.parametrize("layout", [transposed, misaligned])
def test_layouts(of, layout):
    check(of, (70, 36), torch.float32, layout)
    check(of, (3, 7, 65), torch.float16, layout)


def test_rows_that_no_block_holds():
    # A block of 1,024 threads holds 4 vectors a thread beside two sums: 8,192 float64 in a row.
    check("layer_norm", LONG, torch.float64)


def test_no_rows():
    found = opdock.formula("x * vw", "f(Tensor x, Tensor vw) -> Tensor").gradient(["x", "vw"])
    x, w = torch.ones(0, 5), torch.ones(5)
    of_x, of_w = on(DEVICE, found)(x, x, w)
    assert of_x.shape == (0, 5) and torch.equal(of_w, torch.zeros(5))


#: Shapes that are broadcast together, of a, b and c.
BROADCASTS = [
    [(4, 6), (6,), ()],
    [(4, 6), (1, 6), (1,)],
    [(4, 6), (4, 1), (1, 1)],
    [(6,), (4, 1), (6,)],
    [(2, 3, 5), (3, 1), (2, 1, 5)],
    [(2, 1, 5), (1, 3, 1), (5,)],
    [(2, 3, 4, 5), (3, 1, 5), (2, 1, 1, 1)],
    [(2, 3, 4, 5), (1, 3, 1, 5), (4, 1)],
    [(), (), ()],
    [(7,), (), (1,)],
    [(70, 9), (), (9,)],
]


DAILY_BROADCASTS = {"cuda": BROADCASTS[1::4], "rocm": BROADCASTS[7::3]}


@pytest.mark.parametrize(
    "shapes", BROADCASTS if NIGHTLY else DAILY_BROADCASTS.get(DEVICE, BROADCASTS), ids=str
)
@pytest.mark.parametrize("text", ["a * b + exp(c) * a", "a * b * c - 0.5 * mean(a * b + c)"])
def test_each_gradient_has_the_shape_of_its_tensor(text, shapes):
    if "mean" in text and not any(shapes):
        pytest.skip("a reduction needs a row")
    tensors = [numbers(shape, 7 + i).requires_grad_() for i, shape in enumerate(shapes)]
    a, b, c = tensors
    result = a * b + torch.exp(c) * a
    if "mean" in text:
        result = a * b * c - 0.5 * (a * b + c).mean(-1, keepdim=True)
    grad = numbers(result.shape, 1)
    wanted = torch.autograd.grad(result, tensors, grad)
    gradients = opdock.formula(text, "f(Tensor a, Tensor b, Tensor c) -> Tensor").gradient("abc")
    found = on(DEVICE, gradients)(grad, *[x.detach() for x in tensors])
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.daily("cpu", "cuda")
@pytest.mark.parametrize(
    "shapes", [[(30, 8), (8,)], [(2, 3, 8), (3, 8)], [(5, 8), (5, 2)]], ids=str
)
@pytest.mark.parametrize("is_one", [False, True])
def test_gradients_of_parts(shapes, is_one):
    """The gradients of a tensor's parts are parts of its gradient, also if they are summed."""
    x, w = (numbers(shape, 5 + i).requires_grad_() for i, shape in enumerate(shapes))
    (a, b), (c, d) = x.chunk(2, -1), w.chunk(2, -1)
    text = "a, b = chunk(x, 2)\nc, d = chunk(w, 2)\nreturn "
    text += "cat(a * c, b * exp(d))" if is_one else "a * c + b * exp(d)"
    parts = a * c, b * torch.exp(d)
    result = torch.cat(parts, -1) if is_one else parts[0] + parts[1]
    grad = numbers(result.shape, 1)
    wanted = torch.autograd.grad(result, (x, w), grad)
    gradients = opdock.formula(text, "f(Tensor x, Tensor w) -> Tensor").gradient("xw")
    found = on(DEVICE, gradients)(grad, x.detach(), w.detach())
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_the_gradient_of_a_row_s_result_comes_without_columns():
    x, w = numbers((30, 7), 1).requires_grad_(), numbers((7,), 2).requires_grad_()
    s = numbers((), 3).requires_grad_()
    grad = numbers((30,), 4)
    wanted = torch.autograd.grad(torch.logsumexp(x * w, -1) * s, (x, w, s), grad)
    text, schema = "logsumexp(x * w) * s", "f(Tensor x, Tensor w, Tensor s) -> Tensor"
    gradients = on(DEVICE, opdock.formula(text, schema).gradient(["x", "w", "s"]))
    for each in (grad, grad[:, None]):
        found = gradients(each, x.detach(), w.detach(), s.detach())
        for one, other in zip(found, wanted, strict=True):
            assert one.shape == other.shape
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_gradient_that_is_the_same_in_the_row_has_columns():
    x, grad = numbers((5, 7), 1), numbers((5,), 2)
    found = on(DEVICE, opdock.formula("sum(x)", "f(Tensor x) -> Tensor").gradient(["x"]))(grad, x)
    assert torch.equal(found, grad[:, None].expand(5, 7))


def test_an_incoming_gradient_is_not_larger_than_the_result():
    gradients = on(
        DEVICE, opdock.formula("x * w", "f(Tensor x, Tensor w) -> Tensor").gradient("xw")
    )
    x, w = torch.ones(4, 5), torch.ones(5)
    with pytest.raises(opdock.InvalidArgumentError, match=r'"grad": found the shape \[3, 4, 5\]'):
        gradients(torch.ones(3, 4, 5), x, w)
