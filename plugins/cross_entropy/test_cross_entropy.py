# SPDX-License-Identifier: Apache-2.0
"""Tests cross entropy and its gradient through the Python package, against PyTorch's own in
float64."""

import functools

import pytest
import row_cases
import torch

import opdock
from opdock.testing import move, on

# Bound of the relative rounding errors of the scores, the exponential and the sum.
COMPUTED = 3e-6
IGNORED = -100

DEVIATION = 3.0
random = functools.partial(row_cases.random, deviation=DEVIATION)


def targets_of(logits, seed=0):
    """Returns classes from the whole row, including the first and the last one; with several rows,
    one is ignored."""
    generator = torch.Generator().manual_seed(seed)
    classes, shape = logits.shape[-1], logits.shape[:-1]
    target = torch.randint(0, classes, shape, generator=generator)
    flat = target.view(-1)
    flat[:1], flat[1:2], flat[2:3] = classes - 1, 0, IGNORED
    return target


def oracle(logits, target, scale=None, **options):
    """Returns (loss, gradient of the sum of loss * scale) from PyTorch's function and autograd, in
    float64."""
    rows = logits.detach().double().reshape(-1, logits.shape[-1]).requires_grad_()
    loss = torch.nn.functional.cross_entropy(
        rows, target.reshape(-1).long(), reduction="none", **options
    ).reshape(target.shape)
    (loss * (1.0 if scale is None else scale.double())).sum().backward()
    return loss.detach(), rows.grad.reshape(logits.shape)


def scale_of_gradient(logits, target, scale, label_smoothing=0.0, ignore_index=IGNORED):
    """Returns the scale of the rounding errors: the magnitudes of the gradient's terms."""
    terms = torch.softmax(logits.double(), -1) + label_smoothing / logits.shape[-1]
    ignored = (target == ignore_index).unsqueeze(-1)
    classes = target.long().unsqueeze(-1).masked_fill(ignored, 0)
    terms.scatter_add_(-1, classes, torch.ones_like(terms[..., :1]))
    factor = terms.new_ones(()) if scale is None else scale
    return terms.nan_to_num() * factor.double().expand(target.shape).unsqueeze(-1).abs()


def assert_loss(assert_close, found, wanted):
    """Asserts that the loss is infinite where the oracle is, and elsewhere close to it."""
    assert found.shape == wanted.shape
    assert torch.equal(found.isposinf(), wanted.isposinf())
    wanted, found = (x.masked_fill(wanted.isposinf(), 0.0) for x in (wanted, found))
    assert_close(found, wanted, COMPUTED, 1 + wanted.nan_to_num().abs())


def check(assert_close, device, logits, target, scale=None, **options):
    """Compares the results of all three ops with the oracle."""
    loss, gradient = oracle(logits, target, scale, **options)
    terms = scale_of_gradient(logits, target, scale, **options)
    ops = opdock.ops
    found = [on(device, ops.cross_entropy)(logits, target, **options)]
    found += on(device, ops.cross_entropy_with_gradient)(logits, target, scale, **options)
    grad = torch.ones(()) if scale is None else scale
    found += [on(device, ops.cross_entropy_backward)(logits, target, grad, **options)]
    for one in (found[0], found[1]):
        assert one.dtype == torch.float32
        assert_loss(assert_close, one, loss)
    for one in (found[2], found[3]):
        row_cases.assert_like(one, logits)
        assert_close(one, gradient, COMPUTED, terms)


@pytest.mark.parametrize("length", row_cases.LENGTHS)
def test_row_lengths(assert_close, device, dtype, length):
    logits = random((4, length), dtype, length)
    target = targets_of(logits, length)
    smoothing = 0.1 if length % 3 == 0 else 0.0
    check(assert_close, device, logits, target, torch.tensor(0.25), label_smoothing=smoothing)


@pytest.mark.parametrize("length", [50257, 131072, 262144])
def test_vocabularies(assert_close, device, dtype, length):
    logits = random((3, length), dtype, length)
    target = targets_of(logits, length)
    scale = torch.tensor([0.5, 2.0, 1.0])
    found = on(device, opdock.ops.cross_entropy_with_gradient)(
        logits, target, scale, label_smoothing=0.2
    )
    loss, gradient = oracle(logits, target, scale, label_smoothing=0.2)
    assert_loss(assert_close, found[0], loss)
    terms = scale_of_gradient(logits, target, scale, label_smoothing=0.2)
    assert_close(found[1], gradient, COMPUTED, terms)


@pytest.mark.parametrize("length", [8, 33, 512, 1032, 4096])
def test_misaligned_and_padded_rows(assert_close, device, dtype, length):
    for logits in row_cases.layouts(length, dtype, DEVIATION):
        check(assert_close, device, logits, targets_of(logits), label_smoothing=0.1)


@pytest.mark.parametrize("length", [5, 1000, 5000, 33001])
def test_in_place_of_the_logits(assert_close, device, dtype, length):
    for begin in (0, 1):
        wide = random((3, length + 3), dtype, 3)
        logits = wide[:, begin : begin + length]
        target, loss = targets_of(logits), torch.empty(3)
        wanted = oracle(logits, target)
        terms = scale_of_gradient(logits, target, None)
        out = (loss, logits)
        found = on(device, opdock.ops.cross_entropy_with_gradient)(logits, target, out=out)
        assert found[0] is loss and found[1] is logits
        assert_loss(assert_close, loss, wanted[0])
        assert_close(logits, wanted[1], COMPUTED, terms)


@pytest.mark.parametrize("length", [19, 1000])
def test_scales(assert_close, device, dtype, length):
    logits = random((3, 4, length), dtype, 4)
    target = targets_of(logits)
    scales = [torch.rand(shape) for shape in [(), (1,), (4,), (3, 1), (1, 4), (3, 4)]]
    scales += [torch.rand(3, 8)[:, ::2], torch.rand(4, 3).T, torch.rand(()).expand(3, 4)]
    scales += [torch.tensor(1e-30), torch.tensor(-1e6), torch.zeros(())]
    for scale in scales:
        if dtype == torch.float16 and scale.abs().max() > 1e4:
            continue
        check(assert_close, device, logits, target, scale)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_targets(assert_close, device, kind):
    for length in (7, 1000):
        logits = random((3, 4, length), torch.float32, 5)
        target = targets_of(logits).to(kind)
        wide = torch.full((3, 8), 10**6, dtype=kind)
        wide[:, ::2] = target
        for one in (target, wide[:, ::2], target.T.contiguous().T):
            check(assert_close, device, logits, one)
        check(assert_close, device, logits[0, 0], target[0, 0])  # a single row
        check(
            assert_close, device, logits, target.masked_fill(target == IGNORED, 3), ignore_index=3
        )
        check(assert_close, device, logits, torch.full_like(target, IGNORED))


@pytest.mark.parametrize("length", [3, 64, 1000, 5000, 40000])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_infinities_and_nan(assert_close, device, dtype, length, smoothing):
    inf, nan = float("inf"), float("nan")
    logits = random((9, length), dtype, 6)
    target = torch.full((9,), length // 2)
    logits[0, 0] = -inf
    logits[1, length // 2] = -inf
    logits[2] = -inf
    logits[3] = -inf
    logits[3, length // 2] = 1.0
    logits[4, -1] = nan
    logits[5] = nan
    logits[6, 0] = inf
    logits[7, length // 2] = inf
    check(assert_close, device, logits, target, label_smoothing=smoothing)


@pytest.mark.parametrize("length", [3, 1000, 5000, 40000])
def test_ignored_rows_are_not_read(device, dtype, length):
    logits = torch.full((2, length), float("nan"), dtype=dtype)
    target = torch.full((2,), 1 << 40)
    scale = torch.tensor(2.0)
    loss, gradient = on(device, opdock.ops.cross_entropy_with_gradient)(
        logits, target, scale, ignore_index=1 << 40, label_smoothing=0.1
    )
    assert loss.tolist() == [0, 0] and gradient.count_nonzero() == 0


@pytest.mark.parametrize("length", [3, 128, 1000, 5000, 40000])
def test_unusual_rows(assert_close, device, dtype, length):
    """Rows that are all equal, subnormal, far from 0, or far apart."""
    smallest = torch.finfo(dtype).tiny
    small = random((3, length), torch.float32, 7)
    rows = [torch.ones(3, length), torch.zeros(3, length), small * smallest / 8, small + 1000.0]
    rows += [(small * 10000.0).clamp(-60000.0, 60000.0)]
    for logits in rows:
        for smoothing in (0.0, 0.1, 1.0):
            logits = logits.to(dtype)
            check(assert_close, device, logits, targets_of(logits), label_smoothing=smoothing)


@pytest.mark.parametrize("bad", [-1, 1000, 1 << 40, -(1 << 62)])
@pytest.mark.parametrize("length", [1000])
def test_targets_that_are_no_class(assert_close, device, length, bad):
    logits, target = random((3, length), torch.float32, 8), torch.tensor([5, bad, 7])
    before = logits.clone()
    loss = torch.empty(3)
    op = on(device, opdock.ops.cross_entropy_with_gradient)
    if device == "cpu":
        with pytest.raises(opdock.InvalidArgumentError, match=rf"'target': found {bad} in row 1,"):
            op(logits, target, out=(loss, logits))
        assert torch.equal(logits, before)  # although they were to be overwritten
        return
    op(logits, target, out=(loss, logits))
    assert loss[1].isnan() and logits[1].isnan().all()
    wanted = oracle(before[::2], target[::2])
    assert_loss(assert_close, loss[::2], wanted[0])
    assert_close(logits[::2], wanted[1], COMPUTED, torch.ones_like(wanted[1]))


@pytest.mark.parametrize("shape", [(0, 5), (2, 0, 3)])
def test_zero_sizes(device, dtype, shape):
    logits = torch.empty(shape, dtype=dtype)
    target = torch.empty(shape[:-1], dtype=torch.int64)
    loss, gradient = on(device, opdock.ops.cross_entropy_with_gradient)(logits, target)
    assert (loss.shape, gradient.shape) == (shape[:-1], shape)


def test_float64_is_for_the_cpu(device):
    logits = random((5, 1000), torch.float64)
    target, scale = targets_of(logits), torch.rand(5, dtype=torch.float64)
    op = on(device, opdock.ops.cross_entropy_with_gradient)
    if device != "cpu":
        with pytest.raises(opdock.OpdockError, match="'logits'.*float64"):
            op(logits, target, scale)
        return
    options = {"label_smoothing": 0.1}
    loss, gradient = op(logits, target, scale, dtype=torch.float64, **options)
    wanted = oracle(logits, target, scale, **options)
    torch.testing.assert_close(loss, wanted[0], rtol=1e-14, atol=0)
    torch.testing.assert_close(gradient, wanted[1], rtol=1e-12, atol=1e-18)
    rounded = op(logits, target, scale.float(), **options)[0]
    assert torch.equal(rounded, loss.float())


def test_the_reference_is_pytorchs_own(reference):
    logits = random((3, 4, 50), torch.float64, 9)
    target, scale = targets_of(logits), torch.rand(4, dtype=torch.float64)
    for options in ({}, {"label_smoothing": 0.3, "ignore_index": 7}):
        target = target.masked_fill(target == IGNORED, 7)
        found = reference.cross_entropy_with_gradient(
            logits, target, scale, dtype=torch.float64, **options
        )
        wanted = oracle(logits, target, scale, **options)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-15)


def test_the_mean_is_pytorchs(device):
    """Tests what the documentation says about the mean over the rows that are not ignored."""
    logits = random((64, 300), torch.float32, 10)
    target = targets_of(logits)
    target[20:40] = IGNORED
    count = (target != IGNORED).sum()
    loss, gradient = on(device, opdock.ops.cross_entropy_with_gradient)(logits, target, 1 / count)
    rows = logits.double().requires_grad_()
    mean = torch.nn.functional.cross_entropy(rows, target)
    mean.backward()
    torch.testing.assert_close((loss.sum() / count).item(), mean.item(), rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient.double(), rows.grad, rtol=1e-5, atol=1e-9)


def test_the_same_bits_each_time(device, dtype):
    for length in (300, 9000, 70001):
        logits = random((4, length), dtype, 11)
        target = targets_of(logits)
        op = on(device, opdock.ops.cross_entropy_with_gradient)
        one, other = op(logits, target), op(logits, target)
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("length", row_cases.COMPARED_LENGTHS)
@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_no_larger_error_than_pytorch(dtype, what, length):
    def target(logits):
        return torch.arange(logits.shape[0]) % length

    def ours(logits):
        loss, gradient = opdock.ops.cross_entropy_with_gradient(logits.detach(), target(logits))
        return loss if what == "loss" else gradient

    def theirs(logits):
        logits = logits.detach().requires_grad_()
        cross_entropy = torch.nn.functional.cross_entropy
        loss = cross_entropy(logits, target(logits), reduction="none")
        loss.sum().backward()
        return loss.detach() if what == "loss" else logits.grad

    row_cases.assert_no_larger_error(ours, theirs, dtype, length, deviation=3.0)


def bad_inputs():
    x, t = torch.ones(2, 3, 8), torch.zeros(2, 3, dtype=torch.int64)
    return [
        ("logits", (torch.ones(2, 8, dtype=torch.int32), t[:, 0]), {}),
        ("logits", (torch.ones(()), t), {}),
        ("logits", (torch.ones(2, 3, 0), t), {}),
        ("logits", (torch.ones(2, 8, 3).transpose(1, 2), t), {}),
        ("target", (x, t.float()), {}),
        ("target", (x, t[0]), {}),
        ("target", (x, t.T), {}),
        ("target", (x, t.unsqueeze(-1)), {}),
        ("scale", (x, t, torch.ones(2)), {}),
        ("scale", (x, t, torch.ones(1, 2, 3)), {}),
        ("scale", (x, t, torch.ones(3, dtype=torch.float64)), {}),
        ("label_smoothing", (x, t), {"label_smoothing": 1.5}),
        ("label_smoothing", (x, t), {"label_smoothing": float("nan")}),
        ("dtype", (x, t), {"dtype": torch.float64}),
        ("dtype", (x, t), {"dtype": torch.float16}),
        ("ignore_index", (x, t), {"ignore_index": "none"}),
    ]


@pytest.mark.parametrize("number", range(16))
def test_bad_inputs_name_the_argument(device, number):
    name, args, keywords = bad_inputs()[number]
    op = on(device, opdock.ops.cross_entropy_with_gradient)
    row_cases.assert_refused(op, name, *args, **keywords)


def test_target_on_another_device(device):
    if device == "cpu":
        pytest.skip("there is no other device to have the target on")
    with pytest.raises(opdock.OpdockError, match="'target'.*cpu"):
        opdock.ops.cross_entropy(move(torch.ones(2, 8), device), torch.zeros(2, dtype=torch.int64))


@pytest.mark.gpu
def test_on_another_stream_and_in_a_graph(assert_close, cuda):
    logits = random((64, 1000), torch.float16).to(cuda)
    target = targets_of(logits.cpu()).to(cuda)

    def op(x):
        return opdock.ops.cross_entropy_with_gradient(x, target)[1]

    for run in (row_cases.on_another_stream, row_cases.in_a_graph):
        found = run(op, logits)
        terms = scale_of_gradient(logits, target, None)
        assert_close(found, oracle(logits, target)[1], COMPUTED, terms)


@pytest.mark.gpu
@pytest.mark.parametrize("length", row_cases.HUGE_LENGTHS)
def test_more_than_2_to_the_31_elements(assert_close, cuda, length):
    logits, last = row_cases.huge_rows(length, cuda, copies=2)
    target = torch.zeros(len(logits), device=cuda, dtype=torch.int64)
    target[-40:] = length - 1
    loss, gradient = opdock.ops.cross_entropy_with_gradient(logits, target)
    wanted = oracle(last, target[-40:])
    assert_loss(assert_close, loss[-40:], wanted[0])
    terms = scale_of_gradient(last, target[-40:], None)
    assert_close(gradient[-40:], wanted[1], COMPUTED, terms)
    assert torch.equal(gradient[0], gradient[-41])
