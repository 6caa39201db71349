# Tests the activation ops on every device, against PyTorch's formulas in float64.
"""The activation ops on every device, against PyTorch's formulas in float64."""

import pytest
import row_cases
import torch
import torch.nn.functional as F
from row_cases import random

import opdock
from opdock.testing import on

FORMS = ("none", "tanh")
LENGTHS = [1, 2, 3, 127, 384, 768, 1023, 1024, 1025, 4096, 8192, 14432, 32768]
LONGEST = 131072

# Bound of the computation's error, relative to the product of the factors: a handful of roundings
# in float32. For 16-bit elements on a GPU it includes the error of erf, which is small compared
# with half a unit in the last place (5e-4, 4e-3).
COMPUTED = {torch.float32: 5e-7, torch.float16: 1e-5, torch.bfloat16: 1e-5}


def op(name):
    """Loads this plugin's op, and not another plugin's op of the same name."""
    return opdock.load(f"activation/{name}")


def gelu(form):
    return lambda x: F.gelu(x, approximate=form)


def identity(x):
    return x


# (op, keywords, activation) for ops of x and a bias, and for ops of gate and up.
BIASED = [("bias_add", {}, identity), ("bias_relu", {}, F.relu)]
BIASED += [("bias_gelu", {"approximate": form}, gelu(form)) for form in FORMS]
GATED = [("silu_mul", {}, F.silu)]
GATED += [("gelu_mul", {"approximate": form}, gelu(form)) for form in FORMS]
# (op, its keywords, its function) of the ops of pairs of halves, with and without a bias.
HALVES = [("swiglu", {}, F.silu)]
HALVES += [("geglu", {"approximate": form}, gelu(form)) for form in FORMS]


def slopes(act, x, grad):
    """Returns grad times the derivative of act at x, in float64."""
    x = x.double().detach().requires_grad_()
    return torch.autograd.grad(act(x), x, grad.double())[0]


class Check:
    """Calls ops on a device and compares their results with the oracle."""

    def __init__(self, device, assert_close):
        self.device, self.assert_close = device, assert_close
        self.all_layouts = row_cases.tests_layouts_of_formulas(device)

    def call(self, name, *args, **keywords):
        return on(self.device, op(name))(*args, **keywords)

    def compare(self, found, oracle, scale, like):
        row_cases.assert_like(found, like)
        self.assert_close(found, oracle, COMPUTED[like.dtype], scale)

    def sums(self, found, oracle, scale, like):
        """Compares sums of columns, allowing for the terms' own errors and one rounding for each
        added term."""
        rows = oracle.reshape(-1, oracle.shape[-1])
        scale = scale.reshape(rows.shape)
        assert (found.dtype, found.shape) == (like.dtype, rows.shape[1:])
        growth = 2 + 0.05 * len(rows)
        self.assert_close(found, rows.sum(0), COMPUTED[torch.float32] * growth, 10 * scale.sum(0))

    def biased(self, name, act, x, bias, **keywords):
        total = x.double() + bias.double()
        self.compare(self.call(name, x, bias, **keywords), act(total), total.abs(), x)

    def biased_backward(self, name, act, x, bias, grad, **keywords):
        total = x.double() + bias.double()
        args = (grad,) if name == "bias_add" else (grad, x, bias)
        found, sums = self.call(name + "_backward", *args, **keywords)
        oracle = slopes(act, total, grad)
        scale = grad.double().abs() * (1 + total.abs())
        self.compare(found, oracle, scale, x)
        self.sums(sums, oracle, scale, bias)

    def silu(self, x, grad, formulas=True):
        if formulas:
            self.compare(self.call("silu", x), F.silu(x.double()), x.double().abs(), x)
        scale = grad.double().abs() * (1 + x.double().abs())
        self.compare(self.call("silu_backward", grad, x), slopes(F.silu, x, grad), scale, x)

    def gated(self, name, act, gate, up, **keywords):
        oracle = act(gate.double()) * up.double()
        scale = gate.double().abs() * up.double().abs()
        self.compare(self.call(name, gate, up, **keywords), oracle, scale, gate)

    def gated_backward(self, name, act, gate, up, grad, **keywords):
        found = self.call(name + "_backward", grad, gate, up, **keywords)
        wide = grad.double() * up.double()
        scale = wide.abs() * (1 + gate.double().abs())
        self.compare(found[0], slopes(act, gate, wide), scale, gate)
        scale = (grad.double() * gate.double()).abs()
        self.compare(found[1], grad.double() * act(gate.double()), scale, up)

    def halves(self, name, act, x, bias, **keywords):
        total = x.double() if bias is None else x.double() + bias.double()
        first, second = total.chunk(2, -1)
        oracle = first * act(second)
        found = self.call(name, x, bias, **keywords)
        self.compare(found, oracle, (first * second).abs(), x[..., : x.shape[-1] // 2])

    def halves_backward(self, name, act, x, bias, grad, **keywords):
        total = x.double() if bias is None else x.double() + bias.double()
        first, second = total.chunk(2, -1)
        wide = grad.double()
        oracle = torch.cat([wide * act(second), slopes(act, second, wide * first)], -1)
        scale = [(wide * second).abs(), (wide * first).abs() * (1 + second.abs())]
        scale = torch.cat(scale, -1)
        found, sums = self.call(name + "_backward", grad, x, bias, **keywords)
        self.compare(found, oracle, scale, x)
        if bias is None:
            assert sums is None
        else:
            self.sums(sums, oracle, scale, bias)

    def everything(self, x, up, bias, grad, formulas=True):
        """Checks every op with tensors of one shape, a bias and, for geglu, pairs of them.
        formulas: also the ops that are formulas, which are all but the gradients."""
        for name, keywords, act in BIASED:
            if formulas:
                self.biased(name, act, x, bias, **keywords)
            self.biased_backward(name, act, x, bias, grad, **keywords)
        self.silu(x, grad, formulas)
        for name, keywords, act in GATED:
            if formulas:
                self.gated(name, act, x, up, **keywords)
            self.gated_backward(name, act, x, up, grad, **keywords)
        if x.shape[-1] % 2 == 0:
            half = grad[..., : x.shape[-1] // 2]
            for (name, keywords, act), one in zip(HALVES, (bias, None, bias), strict=True):
                if formulas:
                    self.halves(name, act, x, one, **keywords)
                self.halves_backward(name, act, x, one, half, **keywords)


@pytest.fixture
def check(device, assert_close):
    return Check(device, assert_close)


def tensors(shape, dtype, seed=0):
    """Returns x, up, bias and grad."""
    x, up, grad = (random(shape, dtype, seed + i) for i in range(3))
    return x, up, random(shape[-1:], dtype, seed + 3), grad


@pytest.mark.parametrize("length", LENGTHS)
def test_row_lengths(check, dtype, length):
    rows = 5 if length <= 4096 else 2
    formulas = check.all_layouts or length == 1024
    check.everything(*tensors((rows, length), dtype, length), formulas)


def test_long_rows(check, dtype):
    x, up, bias, grad = tensors((2, LONGEST), dtype)
    check.biased("bias_gelu", gelu("none"), x, bias, approximate="none")
    check.gated("silu_mul", F.silu, x, up)
    check.biased_backward("bias_gelu", gelu("none"), x, bias, grad, approximate="none")


@pytest.mark.own_kernels
@pytest.mark.parametrize("rows", [1, 16, 17, 129, 700])
@pytest.mark.parametrize("length", [2, 40, 264])
def test_sums_of_many_rows(check, dtype, rows, length):
    x, _, bias, grad = tensors((rows, length), dtype, rows)
    check.biased_backward("bias_add", identity, x, bias, grad)
    check.biased_backward("bias_gelu", gelu("tanh"), x, bias, grad, approximate="tanh")
    for name, keywords, act in HALVES:
        check.halves_backward(name, act, x, bias, grad[:, : length // 2], **keywords)


def test_halves_without_and_with_a_bias(check, dtype):
    x, _, bias, grad = tensors((5, 70), dtype)
    for name, keywords, act in HALVES:
        for one in (None, bias):
            check.halves(name, act, x, one, **keywords)
            check.halves_backward(name, act, x, one, grad[:, :35], **keywords)


@pytest.mark.own_kernels
def test_sums_are_the_same_each_time(check, dtype):
    _, _, _, grad = tensors((2000, 72), dtype)
    sums = {tuple(check.call("bias_add_backward", grad)[1].tolist()) for _ in range(3)}
    assert len(sums) == 1


@pytest.mark.parametrize("length", [8, 34, 520])
def test_misaligned_and_padded_rows(check, dtype, length):
    for number, x in enumerate(row_cases.layouts(length, dtype)):
        _, up, bias, grad = tensors(x.shape, dtype, 3)
        check.everything(x, up, bias, grad, check.all_layouts or number == 1)
        check.everything(up, x, bias, x, check.all_layouts)


@pytest.mark.parametrize("begin", row_cases.OFFSETS)
@pytest.mark.parametrize("length", [8, 33, 1023, 1024])
def test_offset_by_some_elements(check, dtype, begin, length):
    """Contiguous tensors, each offset in turn, and all of them by the same number."""
    x, up, bias, grad = tensors((5, length), dtype)

    def offset(tensor):
        memory = torch.cat([random(begin, dtype), tensor.reshape(-1), random(9, dtype)])
        return memory[begin : begin + tensor.numel()].view(tensor.shape)

    check.biased("bias_gelu", gelu("tanh"), offset(x), bias)
    check.biased("bias_gelu", gelu("tanh"), x, offset(bias))
    check.gated("silu_mul", F.silu, x, offset(up))
    check.everything(*map(offset, (x, up, bias, grad)), check.all_layouts or begin == 1)


def test_outputs_with_gaps_and_offsets(check, device, dtype):
    x, up, bias, _ = tensors((7, 100), dtype)
    for begin in (1, 8):
        wide = torch.zeros(7, 130, dtype=dtype)
        out = wide[:, begin : begin + 100]
        assert on(device, op("bias_gelu"))(x, bias, out=out) is out
        assert torch.equal(out, check.call("bias_gelu", x, bias))
        assert wide.count_nonzero() == out.count_nonzero()
        assert on(device, op("silu_mul"))(x, up, out=out) is out
        assert torch.equal(out, check.call("silu_mul", x, up))


@pytest.mark.parametrize("length", [33, 1024])
@pytest.mark.parametrize("begin", [0, 1])
def test_in_place(check, device, dtype, length, begin):
    def fresh():
        made = tensors((9, length + begin), dtype, 5)
        return [tensor[..., begin:] for tensor in made]

    x, up, bias, _ = fresh()
    for name, args, at in [
        ("bias_gelu", (0, 2), 0),
        ("silu", (0,), 0),
        ("silu_mul", (0, 1), 0),
        ("gelu_mul", (0, 1), 1),
    ]:
        made = fresh()
        wanted = check.call(name, *((x, up, bias)[i] for i in args))
        assert on(device, op(name))(*(made[i] for i in args), out=made[at]) is made[at]
        assert torch.equal(made[at], wanted)


@pytest.mark.parametrize("shape", row_cases.EMPTY_SHAPES)
def test_zero_sizes(check, dtype, shape):
    x = torch.empty(shape, dtype=dtype)
    bias = x.new_ones(shape[-1])
    for name, keywords, _ in BIASED:
        assert check.call(name, x, bias, **keywords).shape == shape
        args = (x,) if name == "bias_add" else (x, x, bias)
        found, sums = check.call(name + "_backward", *args, **keywords)
        assert found.shape == shape and sums.tolist() == [0] * shape[-1]
    assert check.call("silu", x).shape == shape
    assert [y.shape for y in check.call("silu_mul_backward", x, x, x)] == [shape, shape]
    wide = torch.empty((*shape[:-1], 2 * shape[-1]), dtype=dtype)
    assert check.call("geglu", wide).shape == shape
    sums = check.call("geglu_backward", x, wide, wide.new_ones(wide.shape[-1]))[1]
    assert sums.tolist() == [0] * wide.shape[-1]


@pytest.mark.parametrize("length", [5, 64])
def test_special_values(check, dtype, length):
    """Infinities give the same results as in PyTorch; NaN stays NaN and disturbs no neighbour."""
    info = torch.finfo(dtype)
    inf, nan = float("inf"), float("nan")
    special = [inf, -inf, nan, info.max, -info.max, info.tiny, -info.tiny, info.smallest_normal / 4]
    special += [-info.smallest_normal / 4, 0.0, -0.0, 20.0, -20.0, 100.0, -100.0]
    x = torch.ones(len(special), length, dtype=dtype)
    x[:, length // 2] = torch.tensor(special, dtype=torch.float64).to(dtype)
    zero, one = x.new_zeros(length), torch.ones_like(x)
    acts = {"silu": F.silu, "gelu_mul": gelu("none"), "bias_gelu": gelu("tanh")}
    for name, act in acts.items():
        args = {"silu": (x,), "gelu_mul": (x, one), "bias_gelu": (x, zero)}[name]
        found = check.call(name, *args)
        check.assert_close(found, act(x.double()), COMPUTED[dtype], x.double().abs().nan_to_num(0))
    relu = check.call("bias_relu", x, zero)
    torch.testing.assert_close(relu, F.relu(x), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(check.call("bias_add", x, zero), x, rtol=0, atol=0, equal_nan=True)
    # Gradients at finite numbers are as in PyTorch, and NaN where x is; at infinity they are not
    # specified.
    numbers = x[3:]
    grad = torch.ones_like(numbers)
    for name, act in (("silu", F.silu), ("gelu_mul", gelu("none")), ("bias_gelu", gelu("tanh"))):
        args = {"silu": (grad, numbers), "gelu_mul": (grad, numbers, grad)}
        found = check.call(name + "_backward", *args.get(name, (grad, numbers, zero)))
        found = found if name == "silu" else found[0]
        # PyTorch's float64 has no derivative of tanh gelu at numbers whose cubes are infinite.
        wanted = slopes(act, numbers.double().clamp(-200, 200), grad)
        check.assert_close(found, wanted, 20 * COMPUTED[dtype], torch.ones_like(wanted))
    assert check.call("silu_backward", torch.ones_like(x), x)[2, length // 2].isnan()
    assert check.call("bias_relu_backward", one * inf, x, zero)[0][10].isfinite().any()


def test_equal_values(check, dtype):
    for value in (0.0, 1.0, -3.0):
        x = torch.full((3, 200), value, dtype=dtype)
        found = check.call("silu_mul", x, x)
        assert (found == found[0, 0]).all()


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
def test_errors_are_not_above_torch(check, dtype, spread):
    """Compares the largest error, relative to the terms of a result, with PyTorch's on the CPU."""
    x, up, _, grad = (random((512, 256), dtype, seed, spread) for seed in range(4))
    bias = random(256, dtype, 9, spread)
    width = torch.float64

    def worst(found, oracle, scale):
        return ((found.to(width) - oracle).abs() / scale.to(width).clamp_min(1e-30)).max().item()

    def compare(name, found, torchs, oracle, scale):
        ours, theirs = worst(found, oracle, scale), worst(torchs, oracle, scale)
        assert ours <= theirs * 1.02, f"{name}: {ours} above {theirs}"

    for name, keywords, act in BIASED:
        found = check.call(name, x, bias, **keywords)
        total = x.to(width) + bias.to(width)
        compare(name, found, act(x + bias), act(total), x.to(width).abs() + bias.to(width).abs())
    compare("silu", check.call("silu", x), F.silu(x), F.silu(x.to(width)), x.abs())
    for name, keywords, act in GATED:
        found = check.call(name, x, up, **keywords)
        oracle, scale = act(x.to(width)) * up.to(width), x.to(width).abs() * up.to(width).abs()
        compare(name, found, act(x) * up, oracle, scale)
    for name, keywords, act in GATED:
        found = check.call(name + "_backward", grad, x, up, **keywords)
        narrow = [tensor.detach().requires_grad_() for tensor in (x, up)]
        torchs = torch.autograd.grad(act(narrow[0]) * narrow[1], narrow, grad)
        wide = grad.to(width) * up.to(width)
        compare(name, found[0], torchs[0], slopes(act, x, wide), wide.abs() * (1 + x.abs()))
        oracle = grad.to(width) * act(x.to(width))
        compare(name, found[1], torchs[1], oracle, (grad.to(width) * x.to(width)).abs())


def test_float64_is_for_the_cpu(device, reference):
    x, up, bias, grad = (t.double() for t in tensors((40, 1001 + 3), torch.float32))
    if device != "cpu":
        with pytest.raises(opdock.OpdockError, match="float64"):
            on(device, op("silu"))(x)
        return
    half = grad[:, :502]
    calls = [("silu", (x,), {}), ("silu_backward", (grad, x), {})]
    for name, keywords, _ in BIASED:
        calls.append((name, (x, bias), keywords))
        args = (grad,) if name == "bias_add" else (grad, x, bias)
        calls.append((name + "_backward", args, keywords))
    for name, keywords, _ in GATED:
        calls += [(name, (x, up), keywords), (name + "_backward", (grad, x, up), keywords)]
    for name, keywords, _ in HALVES:
        calls += [(name, (x, bias), keywords), (name + "_backward", (half, x, bias), keywords)]
    for name, args, keywords in calls:
        found, wanted = op(name)(*args, **keywords), getattr(reference, name)(*args, **keywords)
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-13)


def bad_inputs():
    x, bias = torch.ones(4, 8), torch.ones(8)
    half = {"approximate": "half"}
    return [
        ("x", "bias_add", (x.long(), bias.long()), {}),
        ("x", "bias_add", (torch.ones(()), bias), {}),
        ("x", "bias_relu", (torch.ones(8, 4).t(), bias), {}),
        ("bias", "bias_relu", (x, bias[:7]), {}),
        ("bias", "bias_gelu", (x, torch.ones(1, 8)), {}),
        ("bias", "bias_gelu", (x, torch.ones(16)[::2]), {}),
        ("bias", "bias_gelu", (x, bias.half()), {}),
        ("approximate", "bias_gelu", (x, bias), half),
        ("x", "silu", (torch.ones(8, 4).t(),), {}),
        ("up", "silu_mul", (x, x[:3]), {}),
        ("up", "silu_mul", (x, torch.ones(8, 4).t()), {}),
        ("up", "silu_mul", (x, x.half()), {}),
        ("approximate", "gelu_mul", (x, x), half),
        ("x", "geglu", (x[:, :7],), {}),
        ("x", "swiglu", (x[:, :7], bias[:7]), {}),
        ("bias", "swiglu", (x, bias[:4]), {}),
        ("bias", "geglu", (x, bias[:4]), {}),
        ("approximate", "geglu", (x,), half),
        ("grad", "bias_add_backward", (torch.ones(8, 4).t(),), {}),
        ("grad", "bias_relu_backward", (x[:3], x, bias), {}),
        ("bias", "bias_gelu_backward", (x, x, bias[:3]), {}),
        ("grad", "silu_backward", (x.half(), x), {}),
        ("up", "silu_mul_backward", (x, x, x[:3]), {}),
        ("approximate", "gelu_mul_backward", (x, x, x), half),
        ("grad", "geglu_backward", (x, x, bias), {}),
        ("grad", "geglu_backward", (x[:3, :4], x, bias), {}),
        ("grad", "swiglu_backward", (x, x, bias), {}),
    ]


@pytest.mark.parametrize("number", range(27))
def test_bad_inputs_name_the_argument(device, number):
    name, which, args, keywords = bad_inputs()[number]
    row_cases.assert_refused(on(device, op(which)), name, *args, **keywords)


def test_an_output_that_overlaps_is_refused(device):
    memory = torch.ones(80)
    x, bias = memory[:64].view(8, 8), memory[64:72]
    for out in (memory[8:72].view(8, 8), memory[16:80].view(8, 8)):
        with pytest.raises(opdock.OpdockError, match="'out'|output 0"):
            on(device, op("bias_gelu"))(x, bias, out=out)


@pytest.mark.gpu
def test_on_another_stream_and_in_a_graph(cuda):
    x, _, bias, _ = (t.to(cuda) for t in tensors((64, 1024), torch.float16))
    wanted = op("bias_gelu")(x, bias)
    found = row_cases.on_another_stream(lambda y: op("bias_gelu")(y, bias), x)
    assert torch.equal(found, wanted)
    sums = row_cases.in_a_graph(lambda y: op("bias_add_backward")(y)[1], x)
    assert torch.equal(sums, op("bias_add_backward")(x)[1])


@pytest.mark.gpu
@pytest.mark.parametrize("length", row_cases.HUGE_LENGTHS)
def test_more_than_2_to_the_31_elements(assert_close, cuda, length):
    x, last = row_cases.huge_rows(length, cuda, copies=2)
    bias = random(length, torch.bfloat16, 8).to(cuda)
    for keywords in ({"approximate": "none"}, {"approximate": "tanh"}):
        found = op("bias_gelu")(x, bias, **keywords)[-40:]
        total = last.double() + bias.double()
        oracle = F.gelu(total, **keywords)
        assert_close(found, oracle, COMPUTED[torch.bfloat16], total.abs())
    assert_close(op("silu")(x)[-40:], F.silu(last.double()), 1e-5, last.double().abs())
    sums = op("bias_add_backward")(x)[1]
    assert_close(sums, last.double().sum(0), 1e-5, last.double().abs().sum(0))
