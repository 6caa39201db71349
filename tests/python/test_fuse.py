# SPDX-License-Identifier: Apache-2.0
"""Tests opdock.fuse against the same functions, run eagerly by NumPy and torch on the CPU."""

import enum
import math
import sys
import threading
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

import opdock

LINE = Path(__file__).name


def rows(shape=(4, 6), dtype=np.float32, seed=0):
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(dtype)


def same(found, wanted):
    """Checks types, dtypes, shapes and numbers, also inside of containers."""
    assert type(found) is type(wanted)
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for name in wanted:
            same(found[name], wanted[name])
    elif hasattr(wanted, "dtype"):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        precise = {"rtol": 1e-12, "atol": 1e-12} if "64" in str(wanted.dtype) else {}
        loose = {"rtol": 4e-3, "atol": 4e-3} if "16" in str(wanted.dtype) else precise
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(found, wanted, **(loose or {"rtol": 2e-5, "atol": 2e-6}))
    else:
        assert repr(found) == repr(wanted)


def check(function, *args, **kwargs):
    """Checks a first and a second call; returns the fused function."""
    fused = opdock.fuse(function)
    with np.errstate(all="ignore"):
        wanted = function(*args, **kwargs)
    same(fused(*args, **kwargs), wanted)
    same(fused(*args, **kwargs), wanted)
    return fused


def texts(fused):
    return [text for _, text in fused.formulas()]


# ---- what MLX tests of its own


def test_elementwise():
    def swish(gate, up):
        s = 1 / (1 + np.exp(-gate))
        return gate * s * up

    fused = check(swish, rows(), rows(seed=1))
    assert fused.formulas() == [
        (
            "swish(Tensor gate, Tensor up) -> Tensor",
            "t1 = -gate\nt2 = exp(t1)\nt3 = 1 + t2\ns = 1 / t3\nt5 = gate * s\nreturn t5 * up",
        )
    ]


def test_a_lone_operation_and_none():
    assert texts(check(lambda x: np.exp(x), rows())) == ["return exp(x)"]
    x = rows()
    fused = opdock.fuse(lambda x: x)
    assert fused(x) is x and texts(fused) == []


def test_gelu_by_hand():
    def gelu(x):
        return x * 0.5 * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))

    check(gelu, rows(dtype=np.float64))


def test_an_intermediate_value_is_a_result_too():
    def function(x):
        y = np.exp(x)
        return y, y + 1, (y, {"again": y})

    fused = check(function, rows())
    assert texts(fused) == ["y = exp(x)\nreturn y, y + 1"]


def test_results_that_are_arguments_numbers_and_constants():
    x = rows()
    fused = opdock.fuse(lambda x, n, flag=True: (x, n, n * 2, 7, None, "text", flag, x.ndim, x * 2))
    found = fused(x, 3)
    assert found[0] is x
    assert found[1:8] == (3, 6, 7, None, "text", True, 2)
    assert fused(x, 4)[1:3] == (4, 8)
    assert len(fused.formulas()) == 1


def test_numbers_of_other_classes():
    class Size(enum.IntEnum):
        TWO = 2

    check(lambda x, n: x * n + Size.TWO, rows(), Size.TWO)
    check(lambda x, n: (n, x * n), rows(), np.float64(0.5))
    check(lambda x, n: n * x, rows(), np.array(0.5, np.float16))


def test_containers():
    Pair = namedtuple("Pair", "first second")

    def function(pair, rest, *, scale):
        first = pair.first * rest["w"]
        return Pair(first, [pair.second + rest["more"][0], scale]), {"a": first * scale}

    args = Pair(rows(), rows(seed=1)), {"w": rows(6), "more": [rows(seed=2), None]}
    fused = check(function, *args, scale=2.0)
    assert fused.formulas()[0][0] == (
        "function(Tensor pair_0, Tensor pair_1, Tensor rest_w, Tensor rest_more_0, float scale)"
        " -> (Tensor, Tensor, Tensor)"
    )


def test_repeated_arguments():
    x = rows()
    check(lambda x, y: x * y + x, x, x)


def test_a_deep_graph():
    def function(x):
        for _ in range(300):
            x = x * 0.99 + 0.01
        return x

    check(function, rows(dtype=np.float64))


def test_one_formula_serves_all_shapes_and_strides():
    fused = opdock.fuse(lambda x, y: np.exp(x) - y)
    x, y = rows((8, 12)), rows((8, 12), seed=1)
    for a, b in [
        (x, y),
        (x[:3], y[:1]),
        (x[::2, ::-3], y[::2, ::3]),
        (x.T, y.T),
        (x[:, :1], y[:1]),
        (x[:0], y[:0]),
        (np.broadcast_to(x[:1], (8, 12)), y),
    ]:
        same(fused(a, b), np.exp(a) - b)
    assert len(fused.formulas()) == 1


def test_many_dimensions():
    x = rows((2, 1, 2, 1, 2, 1, 2, 1, 2, 3)).transpose(9, 1, 8, 0, 2, 3, 4, 5, 6, 7)
    check(lambda x: x * 2 + 1, x)


def test_many_arguments():
    def function(*xs):
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        return total

    fused = check(function, *(rows(seed=i) for i in range(20)))
    assert fused.formulas()[0][0].startswith("function(Tensor xs_0, Tensor xs_1, ")
    check(function, *(rows(seed=i, dtype=np.float16) for i in range(8)))


def test_many_results():
    fused = check(lambda x: tuple(x * (i + 2) for i in range(64)), rows())
    assert len(fused.formulas()) == 2


def test_results_of_different_shapes():
    def function(x, w):
        return x * w, w + 1, w.sum(), x.sum(-1)

    fused = opdock.fuse(function)
    for x, w in [(rows((4, 6)), rows(6)), (rows((1, 6)), rows(6)), (rows((6,)), rows(6))]:
        same(fused(x, w), function(x, w))
    check(lambda x, v: (x + v, v - 1), rows((4, 6)), rows((4, 1)))
    check(lambda x, v: (x + v, v - 1), rows((4, 6)), rows((4, 6)))


def test_a_shared_broadcast():
    def function(x, w):
        y = x + w
        return y * w, y - w

    check(function, rows(), rows(6))
    check(lambda x, w: (x * w, w * 2 + x), rows((3, 1, 5)), rows((4, 5)))


def test_long_names():
    name = "a_name_" * 30
    space = {}
    exec(f"def function({name}, {name}2): return {name} * {name}2", space)
    check(space["function"], rows(), rows(seed=1))


def test_names_that_mean_something_in_formulas():
    def function(e, pi, float32, column, ä):
        inf = e * pi
        return inf + float32 - column + ä * math.inf

    check(function, *(rows(seed=i) for i in range(5)))


def test_constants():
    x = rows(dtype=np.float64)
    for number in [
        math.inf,
        -math.inf,
        math.nan,
        0.1,
        1e-300,
        5e-324,
        1.7976931348623157e308,
        -0.0,
    ]:
        check(lambda x, n=number: x * n, x)
        check(lambda x, n=number: np.copysign(x, n), x)
    for number in [0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]:
        check(lambda x, n=number: x * 0 + n, np.arange(6))
    nine = check(lambda x: x * np.float32(0.123456789), rows())
    assert texts(nine) == ["return x * 0.12345679104328156"]


def test_constants_do_not_mix():
    x = rows()
    for a, b in [(1, 11), (11, 1), (1.0, 11), (True, 1), (-0.0, 1), (0.0, 1)]:
        fused = opdock.fuse(lambda x, a=a, b=b: np.copysign(x * b, a))
        same(fused(x), np.copysign(x * b, a))
    fused = opdock.fuse(lambda x, options: x * options[0] + options[1])
    for a, b in [(1, 11), (11, 1), (1.0, 11), (True, 1), (1, True)]:
        same(fused(x, (a, b)), x * a + b)


def test_dtypes():
    for dtype in ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"):
        check(lambda x: abs(x) + x, np.arange(12).reshape(3, 4).astype(dtype))


def test_a_function_that_raises_leaves_nothing():
    states = [True]

    def function(x):
        if states:
            raise KeyError("first")
        return x + 1

    fused = opdock.fuse(function)
    with pytest.raises(KeyError, match="first"):
        fused(rows())
    assert fused.formulas() == []
    states.clear()
    same(fused(rows()), rows() + 1)


def test_memory_that_no_vector_is_aligned_to():
    x = rows(25)[1:].reshape(4, 6)
    check(lambda x: x * 2 + 1, x)


# ---- numbers


def test_numbers_are_parameters():
    fused = opdock.fuse(lambda x, a, n: x * a + n)
    for a, n in [(0.5, 1), (2.5, -3), (math.inf, 0)]:
        same(fused(rows(), a, n), rows() * a + n)
    assert fused.formulas() == [
        ("fused(Tensor x, float a, int n) -> Tensor", "t1 = x * a\nreturn t1 + n")
    ]
    same(fused(rows(), 2, 1), rows() * 2 + 1)  # an int is another pattern
    assert len(fused.formulas()) == 2


def test_arithmetic_of_numbers_is_pythons():
    def function(x, a, n):
        scale = (a + 1) / n - -a
        return x * scale + n // 2 % 3 + abs(a) - 2**0.5

    fused = check(function, rows(), 0.5, 7)
    same(fused(rows(), 1.5, 11), function(rows(), 1.5, 11))
    assert len(fused.formulas()) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x, a: x * 2 if a > 1 else x + 2,
        lambda x, a: x * math.sqrt(a),
        lambda x, a: x * float(a),
        lambda x, a: x * [3, 4, 5, 6][int(a)],
        lambda x, a: x * np.sqrt(a),
        lambda x, a: x ** (a**a),
        lambda x, a: x * {1.0: 5, 2.0: 6, 3.0: 7}[a],
        lambda x, a: x + round(a) + len(f"{a}"),
    ],
)
def test_a_number_whose_value_is_used_is_part_of_the_pattern(function):
    fused = opdock.fuse(function)
    for a in (1.0, 2.0, 3.0, 1.0):
        same(fused(rows(), a), function(rows(), a))
    assert len(fused._plans) == 1


def test_zeros_of_both_signs_are_different_values():
    fused = opdock.fuse(lambda x, a: np.copysign(x, float(a)))
    for a in (0.0, -0.0, math.nan, 0.0):
        same(fused(rows(), a), np.copysign(rows(), a))
    assert len(fused.formulas()) == 3


def test_only_numbers_whose_value_is_used_are():
    fused = opdock.fuse(lambda x, a, b: x * b if a > 0 else x)
    for b in range(5):
        same(fused(rows(), 1, float(b)), rows() * float(b))
    assert len(fused.formulas()) == 1


def test_isinstance_holds():
    def function(x, a):
        return x * a if isinstance(a, float) and isinstance(x, np.ndarray) else None

    check(function, rows(), 0.5)


def test_a_library_that_takes_no_stand_in_gets_the_number(torch):
    def function(x, beta):
        return torch.nn.functional.softplus(x, beta)

    fused = opdock.fuse(function)
    x = torch.from_numpy(rows())
    for beta in (1.0, 2.0):
        torch.testing.assert_close(fused(x, beta), function(x, beta))


# ---- shapes


def test_sizes_are_parameters():
    def function(x):
        return x.sum(-1, keepdims=True) / x.shape[-1] + x.size * x.shape[0] ** -0.5

    fused = check(function, rows())
    same(fused(rows((5, 3))), function(rows((5, 3))))
    assert len(fused.formulas()) == 1


def test_a_size_whose_value_is_used_is_part_of_the_pattern():
    def function(x):
        return x * 2 if x.shape[0] > 4 else x * 3

    fused = opdock.fuse(function)
    for size in (4, 5, 6):
        same(fused(rows((size, 3))), function(rows((size, 3))))
    assert len(fused.formulas()) == 2  # two of the three patterns have one formula


def test_the_size_of_a_broadcast_value():
    def function(x, y):
        z = x + y
        return z / z.shape[0]

    fused = opdock.fuse(function)
    for x, y in [((4, 6), (6,)), ((1, 6), (3, 6)), ((3, 1), (1, 1))]:
        same(fused(rows(x), rows(y)), function(rows(x), rows(y)))
    assert len(fused.formulas()) == 1


def test_dtype_and_ndim():
    def function(x):
        return x * 2 if x.dtype == np.float32 and x.ndim == 2 and len(x) else x.astype(np.float32)

    check(function, rows())
    check(function, rows(dtype=np.float64))


def test_views_of_arguments():
    x = rows((6, 6))
    check(lambda x: x[:, None] * x.T, x)
    check(lambda x: x[..., ::2] * x[..., 1::2], x)
    check(lambda x: x[..., : x.shape[-1] // 2] + x[..., x.shape[-1] // 2 :], x)
    check(lambda x: (x[0] + x[:, -1], x[1:]), x)
    check(lambda v, x: v[:, None] * x + v.T, rows(6), x)
    check(lambda x: x.transpose(1, 0) + np.swapaxes(x, 0, 1), x)
    fused = opdock.fuse(lambda x: x[..., : x.shape[-1] // 2] * 2)
    same(fused(rows((2, 4))), rows((2, 4))[..., :2] * 2)
    same(fused(rows((2, 8))), rows((2, 8))[..., :4] * 2)


# ---- rows


def test_rms_norm():
    def rms_norm(x, weight=None, eps=1e-5):
        y = x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + eps)
        return y if weight is None else y * weight

    check(rms_norm, rows(), rows(6))
    fused = check(rms_norm, rows(), eps=1e-3)
    same(fused(rows(), eps=0.5), rms_norm(rows(), eps=0.5))
    assert len(fused.formulas()) == 1


def test_softmax_and_cross_entropy():
    def softmax(x):
        y = np.exp(x - x.max(axis=-1, keepdims=True))
        return y / y.sum(axis=-1, keepdims=True)

    fused = check(softmax, rows())
    assert texts(fused) == ["t1 = amax(x)\nt2 = x - t1\ny = exp(t2)\nt4 = sum(y)\nreturn y / t4"]

    def loss(x, picked):
        most = x.max(-1)
        return np.log(np.exp(x - most[:, None]).sum(-1)) + most - picked

    check(loss, rows(), rows(4))


def test_keepdims():
    check(lambda x: (x.sum(-1), x.sum(-1, keepdims=True), x - x.mean(1)[:, None]), rows())
    check(lambda x: x.mean(-1, keepdims=True)[..., 0] + x.max(-1), rows())
    check(lambda x: np.expand_dims(x.sum(-1), -1) * 2, rows((3, 4, 5)))
    check(lambda x, v: x.sum(-1, keepdims=True) + v, rows(), rows((4, 1)))
    check(lambda x, v: x.sum(-1) * v > 0, rows((3, 4, 5)), rows((4,)))
    check(lambda x: x / x.sum() + x.max(), rows(6))
    check(lambda x: x.sum(), rows(6))
    check(lambda x: x.any(-1) & (x > 0).all(-1), rows())
    check(lambda x: np.zeros_like(x.sum(-1)) + x.sum(-1), rows())


def test_reductions():
    def function(x):
        return (
            *(np.sum(x, -1), np.mean(x, axis=-1), np.prod(x, -1), np.max(x, -1), np.amin(x, -1)),
            *(np.argmax(x, -1), np.argmin(x, 1), np.var(x, -1), np.std(x, -1, ddof=1)),
            *(np.add.reduce(x, -1), np.count_nonzero(x > 0, axis=-1), x.sum(-1, dtype=np.float64)),
        )

    check(function, rows())
    check(function, rows((5,)).reshape(1, 5))


def test_adam():
    def adam(p, g, m, v, step, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        return p - lr * (m / (1 - b1**step)) / (np.sqrt(v / (1 - b2**step)) + eps), m, v

    args = [rows(seed=i, dtype=np.float64) for i in range(3)]
    check(adam, *args, np.abs(rows(seed=4, dtype=np.float64)), 3)


def test_zeros_like_keeps_its_shape():
    check(lambda x, w: np.where(x > 0, x, np.zeros_like(x)), rows(), rows(6))
    check(lambda x: (np.full_like(x, 0.1), np.where(x > 0, 0.1, -0.0)), rows(dtype=np.float64))
    check(lambda x: np.ones_like(x, dtype=bool), rows())
    check(lambda x, w: (np.zeros_like(x) + w, np.ones_like(x), np.full_like(x, 3)), rows(), rows(6))


# ---- calls


def test_decorator_and_method():
    @opdock.fuse
    def function(x):
        """Doubles x."""
        return x * 2

    assert (function.__name__, function.__doc__) == ("function", "Doubles x.")
    same(function(x=rows()), rows() * 2)

    class Model:
        scale = 3

        @opdock.fuse
        def forward(self, x):
            return x * self.scale

    same(Model().forward(rows()), rows() * 3)


def test_a_fused_function_inside_of_another():
    inner = opdock.fuse(lambda x, a: x * a)
    fused = opdock.fuse(lambda x: inner(x, 2) + inner(x + 1, 0.5))
    same(fused(rows()), rows() * 2 + (rows() + 1) * 0.5)
    assert len(fused.formulas()) == 1 and inner.formulas() == []


def test_optional_arguments_and_choices():
    fused = opdock.fuse(lambda x, w=None, mode="none": x * 2 if mode == "none" else x * w)
    same(fused(rows()), rows() * 2)
    same(fused(rows(), rows(6), mode="w"), rows() * rows(6))
    same(fused(rows(), mode="none"), rows() * 2)


def test_out():
    x, out = rows(), np.empty((4, 6), np.float32)
    fused = opdock.fuse(lambda x: x * 2)
    assert fused(x, out=out) is out
    same(out, x * 2)
    pair = opdock.fuse(lambda x: (x * 2, x + 1))
    outs = np.empty_like(x), np.empty_like(x)
    pair(x, out=outs)
    same(outs, (x * 2, x + 1))
    own = opdock.fuse(lambda x, out=None: x * 2 if out is None else x + out)
    same(own(x, out=x), x + x)


def test_changes_in_place_of_computed_arrays():
    def function(x):
        y = x * 2
        z = y
        y += 1
        y *= x
        np.exp(y, out=y)
        return y, z

    check(function, rows())


def test_threads():
    fused = opdock.fuse(lambda x, a: np.exp(x) * a + x.mean(-1, keepdims=True))
    x, failures = rows(), []

    def work(i):
        try:
            for n in range(20):
                same(fused(x, float(i + n)), np.exp(x) * float(i + n) + x.mean(-1, keepdims=True))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures and len(fused.formulas()) == 1


# ---- torch


def torch_check(torch, function, *args):
    fused = opdock.fuse(function)
    wanted = function(*args)
    for _ in range(2):
        found = fused(*args)
        for one, other in zip(
            *(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True
        ):
            torch.testing.assert_close(one, other)
    return fused


def test_torch_functions(torch):
    f = torch.nn.functional
    x, w, b = (torch.from_numpy(rows(shape, seed=3)) for shape in ((4, 6), 6, 6))
    torch_check(torch, lambda x: (f.gelu(x), f.gelu(x, approximate="tanh"), f.silu(x)), x)
    torch_check(
        torch, lambda x: (f.softplus(x), f.softplus(x, 2.0, 1.0), f.softplus(x.double())), x * 20
    )
    torch_check(torch, lambda x: (f.softmax(x, -1), x.log_softmax(1), torch.logsumexp(x, -1)), x)
    torch_check(torch, lambda x, w, b: f.layer_norm(x, (6,), w, b), x, w, b)
    torch_check(torch, lambda x, w: f.layer_norm(x, x.shape[-1:], w, eps=1e-3), x, w)
    torch_check(torch, lambda x, w: f.rms_norm(x, (x.size(-1),), w), x, w)
    torch_check(torch, lambda x: f.rms_norm(x, (6,), eps=1e-3), x)
    torch_check(torch, lambda x, w: torch.lerp(x, w, 0.3) + torch.lerp(x, w, x), x, w)
    torch_check(torch, lambda x: (f.leaky_relu(x), f.elu(x, 0.5), f.relu6(x), f.hardtanh(x)), x)
    torch_check(torch, lambda x: (f.mish(x), f.hardswish(x), f.hardsigmoid(x), f.logsigmoid(x)), x)
    torch_check(torch, lambda x, w: (x.clamp(-1, 1), x.clamp(min=w), torch.clip(x, max=0.5)), x, w)
    torch_check(torch, lambda x, w: torch.add(x, w, alpha=2) - torch.sub(x, w, alpha=0.5), x, w)
    torch_check(torch, lambda x, w: torch.addcmul(x, w, w, value=0.5) / x.addcdiv(w, w.exp()), x, w)
    torch_check(torch, lambda x: x.masked_fill(x > 0, -1.0) + torch.where(x < 0, x, 2.0), x)
    torch_check(torch, lambda x: torch.where(x > 0, 1.0, 0.0), x.double())
    torch_check(torch, lambda x: torch.max(x, -1).values + x.min(dim=-1)[0] + x.amax(-1), x)
    torch_check(
        torch, lambda x: (x.var(-1), x.std(-1, unbiased=False), torch.var(x, -1, correction=2)), x
    )
    torch_check(
        torch,
        lambda x: torch.div(x, 0.3, rounding_mode="floor") + x.div(0.7, rounding_mode="trunc"),
        x,
    )
    torch_check(torch, lambda x: x.sum(-1, keepdim=True).squeeze(-1).unsqueeze(-1) * x, x)
    torch_check(torch, lambda x: (x + 1).mul_(2).relu_(), x)


def test_torch_conversions(torch):
    x = torch.from_numpy(rows())
    torch_check(torch, lambda x: (x.half(), x.to(torch.float64), x.bfloat16().float(), x.int()), x)
    torch_check(torch, lambda x, y: x.to(y.dtype) + x.type_as(y), x, x.double())
    torch_check(
        torch, lambda x: torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True)) * x, x.bfloat16()
    )


def test_torch_chunk_and_views(torch):
    def swiglu(x):
        gate, up = x.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up

    fused = torch_check(torch, swiglu, torch.from_numpy(rows((3, 8))))
    assert fused.formulas()[0] == (
        "swiglu(Tensor gate, Tensor up) -> Tensor",
        "t1 = silu(gate)\nreturn t1 * up",
    )
    torch_check(torch, lambda x: x.T + x.transpose(0, 1) + x.permute(1, 0) + x.mT, torch.eye(3))


def test_torch_grad(torch):
    fused = opdock.fuse(lambda x, bias: torch.nn.functional.gelu(x + bias) * 2)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(fused, (x, bias))
    with torch.no_grad():
        assert not fused(x, bias).requires_grad
    with pytest.raises(opdock.UnsupportedError, match="a result that is written into a tensor"):
        fused(x, bias, out=torch.empty(3, 4, dtype=torch.float64))


# ---- errors


OUTSIDE = np.ones(6, np.float32)


def branch(x):
    return x if x > 0 else -x


def loop(x):
    return [row for row in x]


def to_float(x):
    return x * float(x)


def item(x):
    return x * x.item()


def unknown(x):
    return np.cumsum(x, -1)


def other_axis(x):
    return x.sum(axis=0)


def all_axes(x):
    return x.sum()


def no_keepdims(x):
    return x / x.sum(-1)


def twice(x):
    return x.mean(-1).sum(-1)


def outside(x):
    return x * OUTSIDE


def in_place(x):
    x += 1
    return x


def assignment(x):
    x[0] = 1
    return x


def matrices(x):
    return x @ x


def mask(x):
    return x[x > 0]


def as_array(x):
    return np.asarray(x)


def an_argument(x):
    return np.sum(x, -1, initial=3)


def accumulate(x):
    return np.add.accumulate(x)


def complex_number(x):
    return x * 2j


def stacked(x):
    return np.stack([x, x])


VALUES = (
    "wanted no use of its values in Python, since they are not known when the function is "
    "traced; select with where(), or compute this part outside of the fused function"
)
KNOWN = (
    "wanted one that fuse knows; docs/guide/fuse.md lists them, or call it before or after the "
    "fused function"
)
ERRORS = [
    (branch, f"found bool() of an array, {VALUES}"),
    (to_float, f"found float() of an array, {VALUES}"),
    (as_array, f"found numpy.asarray() of an array, {VALUES}"),
    (
        loop,
        "found a loop over an array, wanted whole arrays; write what is done with each element "
        "instead",
    ),
    (
        item,
        "found the function or method 'item', wanted one that fuse knows; the values are not "
        "known when "
        "the function is traced; do this outside of it, or call it before or after the fused "
        "function",
    ),
    (unknown, f"found the function or method 'cumsum', {KNOWN}"),
    (matrices, f"found the function or method 'matmul', {KNOWN}"),
    (stacked, f"found the function or method 'stack', {KNOWN}"),
    (
        other_axis,
        "found 'sum' along dimension 0 of 2, wanted the last one; pass -1, and transpose "
        "the array "
        "before the call, or reduce outside of the function",
    ),
    (
        all_axes,
        "found 'sum' along all dimensions of 2, wanted the last one; pass -1, and "
        "transpose the array "
        "before the call, or reduce outside of the function",
    ),
    (
        no_keepdims,
        "found a value of each row (a reduction without keepdims) next to one of each "
        "element, "
        "wanted both of one kind; pass keepdims=True (torch: keepdim=True), or write "
        "r[..., None]",
    ),
    (
        twice,
        "found 'sum' of a value of which each row has one, wanted one that has a value for "
        "each column; "
        "a formula reduces along the last dimension only: split the function in two",
    ),
    (
        outside,
        "found an array that is no argument of the function, wanted arrays that are "
        "arguments; "
        "pass it to the function",
    ),
    (in_place, "found a change of an argument in place, wanted new values only; write x = x + y"),
    (
        assignment,
        "found an assignment to elements of an array, wanted new values only; write "
        "where(mask, value, x)",
    ),
    (
        mask,
        "found an index that is no number, slice, None or ..., wanted one of these; gather "
        "before the "
        "call, or select with where()",
    ),
    (an_argument, "found initial=3 of 'sum', wanted no initial value; combine it with the result"),
    (
        accumulate,
        "found numpy.add.accumulate(), wanted a call of the function itself; write what "
        "it does "
        "with functions that fuse knows",
    ),
    (
        complex_number,
        "found a value of dtype complex64, wanted bool, uint8, int8 to int64, "
        "float16, bfloat16, "
        "float32 or float64; convert the arguments first",
    ),
]


@pytest.mark.parametrize(("function", "text"), ERRORS, ids=lambda x: getattr(x, "__name__", ""))
def test_errors(function, text):
    fused = opdock.fuse(function)
    with pytest.raises(opdock.InvalidArgumentError) as error:
        fused(rows())
    line = function.__code__.co_firstlineno + 1
    source = Path(__file__).read_text().splitlines()[line - 1].strip()
    assert str(error.value) == f"fuse: {function.__name__}: {text}\n  {LINE}:{line}: {source}"
    assert fused._plans == {}


def test_errors_of_arguments(torch):
    fused = opdock.fuse(branch)
    for args, text in [
        (
            (3,),
            "fuse: branch: found no array among the arguments, wanted at least one, of torch, "
            "NumPy, "
            "CuPy or JAX",
        ),
        (
            (np.zeros(3, np.uint16),),
            "fuse: branch: argument 'x': found uint16, wanted bool, "
            "uint8, int8 to "
            "int64, float16, bfloat16, float32 or float64; convert it "
            "first",
        ),
        (
            ([np.zeros(3), torch.zeros(3)],),
            "fuse: branch: found arrays of numpy and torch, wanted "
            "those of "
            "one library; convert them first",
        ),
    ]:
        with pytest.raises(opdock.InvalidArgumentError) as error:
            fused(*args)
        assert str(error.value) == text
    with pytest.raises(opdock.ArgumentError) as error:
        fused([np.zeros(3), {1}])
    assert str(error.value) == (
        "fuse: branch: found an argument that has no hash (unhashable type: 'set'), wanted "
        "arrays, numbers, "
        "and objects that have one; pass its parts instead"
    )
    with pytest.raises(TypeError, match="missing a required argument"):
        opdock.fuse(lambda x, y: x + y)(rows())
    with pytest.raises(
        opdock.ArgumentError, match=r"^fuse\(\): found an object of type int, wanted a function$"
    ):
        opdock.fuse(3)


def test_an_array_of_an_earlier_call():
    kept = []

    def function(x):
        kept.append(x)
        return x + kept[0]

    fused = opdock.fuse(function)
    same(fused(rows()), rows() * 2)
    with pytest.raises(opdock.InvalidArgumentError) as error:
        fused(rows(dtype=np.float64))
    assert str(error.value) == (
        "fuse: function: found an array of an earlier trace, wanted one of this call; the "
        "function stored it "
        "outside: return it instead"
    )


def test_a_result_of_an_unknown_type():
    with pytest.raises(opdock.InvalidArgumentError) as error:
        opdock.fuse(lambda x: {x.dtype})(rows())
    assert str(error.value) == (
        "fuse: <lambda>: found a result of type set, wanted arrays, numbers, None, and tuples, "
        "lists and dicts "
        "of them; return its parts instead"
    )


def test_too_many_patterns(monkeypatch):
    monkeypatch.setattr(sys.modules["opdock._fuse"], "_MAX_PLANS", 3)
    fused = opdock.fuse(lambda x, a: x * float(a))
    for a in range(3):
        fused(rows(), a)
    with pytest.raises(opdock.InvalidArgumentError) as error:
        fused(rows(), 3)
    assert str(error.value) == (
        "fuse: <lambda>: found more than 3 patterns of arguments, wanted fewer, because each is "
        "compiled and "
        "kept; pass what changes as an array, or do not use its value in Python"
    )


def test_jax_methods_and_operators():
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(rows())
    fused = opdock.fuse(lambda x: (x * 2 - x.mean(-1, keepdims=True)).astype("bfloat16"))
    found = fused(x)
    assert isinstance(found, jax.Array) and str(found.dtype) == "bfloat16"
    wanted = rows() * 2 - rows().mean(-1, keepdims=True)
    np.testing.assert_allclose(np.asarray(found, np.float32), wanted, rtol=1e-2, atol=1e-2)


def test_the_guide():
    """Runs the guide's examples, and checks that it lists every function."""
    import re

    page = Path(__file__).parents[2] / "docs/guide/fuse.md"
    text = page.read_text()
    space = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    for block in blocks:
        exec(block, space)
    listed = set(re.findall(r"\w+", text.partition("## What it knows")[2]))
    import opdock._fuse_functions as functions

    missing = {name.removeprefix("special_").rstrip("_") for name in functions.names()} - listed
    assert not missing - functions.OPERATORS
