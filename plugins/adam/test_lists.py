# SPDX-License-Identifier: Apache-2.0
"""Tests adagrad_, lamb_ and lion_ on every device, against the formulas in float64. test_adam.py
tests adam_ and adamw_."""

import copy
import math
import sys
from pathlib import Path

import pytest
import torch

import opdock
from opdock.testing import HALF_ULP

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lists_cases import (
    BF16,
    F16,
    F32,
    F64,
    KINDS,
    REORDERED,
    SIZES,
    State,
    moved,
    optimize,
    reordered,
    same,
)

OPS = ["adagrad_", "lamb_", "lion_"]
SINGLE = HALF_ULP["float32"]
# The tensors that one launch takes (device/*_params.cuh).
MOST = {"adagrad_": 86, "lamb_": 70, "lion_": 86}


def lion(state, lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0, **_):
    """Returns {(list, number): (value, its error's scale)} after the step, in float64."""
    found = {}
    for i, (w, g, m) in enumerate(elements(state)):
        ahead, size = beta1 * m + (1 - beta1) * g, beta1 * m.abs() + (1 - beta1) * g.abs()
        sign = torch.where(ahead.isnan(), ahead, ahead.sign())  # torch's sign of NaN is 0
        weight = (1 - lr * weight_decay) * w - lr * sign
        # Close to 0 the sign is a matter of rounding.
        unsure = torch.where((ahead.abs() < 4 * SINGLE * size) & (size > 0), lr / SINGLE, 0)
        found["params", i] = found["masters", i] = weight, w.abs() + lr + unsure
        found["exp_avgs", i] = beta2 * m + (1 - beta2) * g, beta2 * m.abs() + (1 - beta2) * g.abs()
    return found


def elements(state, grad_scale=1.0, maximize=False):
    """Yields weight, gradient and states of each tensor in float64."""
    for i, weight in enumerate(state.masters or state.params):
        states = (getattr(state, name)[i].double() for name in state.states)
        yield weight.double(), state.grads[i].double(), *states


def adagrad(state, lr=1e-2, eps=1e-10, weight_decay=0.0, **_):
    """Does the same for Adagrad."""
    found = {}
    for i, (w, g, v) in enumerate(elements(state)):
        g, size = g + weight_decay * w, g.abs() + weight_decay * w.abs()
        v, factor = v + g**2, lr / ((v + g**2).sqrt() + eps)
        found["params", i] = found["masters", i] = w - factor * g, w.abs() + factor * size
        found["state_sums", i] = v, v + size**2
    return found


def lamb(
    state,
    lr=1e-3,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    weight_decay=0.0,
    max_coeff=10.0,
    min_coeff=0.01,
    bias_correction=True,
    eps_inside_sqrt=False,
    **_,
):
    """Does the same for LAMB; "ratios" has the trust ratios."""
    found, ratios = {}, []
    t = float(state.step) + 1
    if bias_correction:
        lr *= math.sqrt(1 - beta2**t) / (1 - beta1**t)
    for i, (w, g, m, v) in enumerate(elements(state)):
        mean, square = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        size = beta1 * m.abs() + (1 - beta1) * g.abs()
        found["exp_avgs", i], found["exp_avg_sqs", i] = (mean, size), (square, square)
        # The change is that of the averages as they are stored.
        dtype = state.exp_avgs[i].dtype
        mean, square = mean.to(dtype).double(), square.to(dtype).double()
        root = (square + eps).sqrt() if eps_inside_sqrt else square.sqrt() + eps
        change = mean / root + weight_decay * w
        norms = w.norm(), change.norm()
        ratio = float(norms[0] / norms[1]) if min(norms) > 0 else 1.0
        if min(norms) > 0:
            ratio = min(max(ratio, min_coeff), max_coeff)
        ratios.append(ratio)
        size = size / root + weight_decay * w.abs()
        # A 16-bit average may have been rounded to either side: a unit in its last place.
        unsure = HALF_ULP[str(dtype).removeprefix("torch.")] / SINGLE if dtype.itemsize == 2 else 1
        scale = w.abs() + lr * ratio * size * 4 * unsure
        found["params", i] = found["masters", i] = w - lr * ratio * change, scale
    found["ratios"] = torch.tensor(ratios, dtype=F64)
    return found


ORACLES = {"adagrad_": adagrad, "lamb_": lamb, "lion_": lion}


def oracle(state, grad_scale=1.0, maximize=False, lr_tensor=None, found_inf=None, **options):
    before = copy.deepcopy(state)
    factor = (-1 if maximize else 1) / float(grad_scale)
    before.grads = [x.double() * factor for x in before.grads]
    if lr_tensor is not None:
        options["lr"] = float(lr_tensor)
    return ORACLES[state.op](before, **options)


def check(device, state, assert_close, **options):
    """Does one step, and asserts that each number is as exact as float32 arithmetic allows."""
    wanted = oracle(state, **options)
    found = optimize(device, state, **options)
    for key, x in state.lists():
        if key[0] != "grads":
            value, scale = wanted[key]
            precise = 16 * HALF_ULP["float64"] if x.dtype == F64 else 6 * SINGLE
            assert_close(x, value, precise, scale)
    if state.op == "lamb_":
        torch.testing.assert_close(found.double(), wanted["ratios"], rtol=2e-6, atol=0)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_step(device, assert_close, op, kind):
    check(device, State(SIZES, kind, op=op), assert_close, weight_decay=0.1)


@pytest.mark.parametrize("op", OPS)
def test_float64_is_for_the_cpu(device, assert_close, op):
    state = State(SIZES, (F64, F64, F64, False), op=op)
    if device != "cpu":
        with pytest.raises(opdock.OpdockError, match=r"'params\[0\]'.*float64"):
            optimize(device, state)
        return
    check(device, state, assert_close, weight_decay=0.1, maximize=True)


OPTIONS = [
    {},
    {"maximize": True, "weight_decay": 0.2},
    {"grad_scale": torch.tensor(1024.0)},
    {"grad_scale": torch.tensor([0.3]), "weight_decay": 0.1, "maximize": True},
    {"lr_tensor": torch.tensor(0.25), "lr": 7.0, "weight_decay": 0.1},
    {"found_inf": torch.tensor(0.0), "lr": 0.0},
]
MORE = {
    "adagrad_": [{"eps": 0.1, "lr": 0.3}, {"eps": 1e-4, "weight_decay": 0.3}],
    "lamb_": [
        {"eps_inside_sqrt": True, "weight_decay": 0.1, "eps": 1e-3},
        {"bias_correction": False, "weight_decay": 0.01, "lr": 0.1},
        {"max_coeff": 0.2, "weight_decay": 0.1, "eps": 1e-2},
        {"min_coeff": 5.0, "weight_decay": 0.1, "eps": 1e-2},
        {"beta1": 0.0, "beta2": 0.0, "eps": 0.1},
    ],
    "lion_": [{"beta1": 0.0, "beta2": 0.0}, {"beta1": 0.99, "beta2": 0.99999, "lr": 0.3}],
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_options(device, assert_close, op, number):
    for kind in (KINDS[0], (F16, F16, F32, True)):
        check(device, State([129], kind, op=op), assert_close, **OPTIONS[number])


@pytest.mark.parametrize("op", OPS)
def test_more_options(device, assert_close, op):
    for options in MORE[op]:
        check(device, State([129, 7], op=op), assert_close, **options)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("kind", [KINDS[0], (BF16, BF16, F32, True), (F16, F16, F16, False)])
def test_any_alignment(device, assert_close, op, kind):
    """All lists are misaligned, or all but one, also by single elements; sizes are around a vector
    and a chunk."""
    for offset in (1, 2, 4):
        for spared in (None, "params", "grads"):
            state = State([1023, 1025, 5, 2051], kind, op=op)
            for name in state.names():
                if name != spared and getattr(state, name):
                    setattr(state, name, [moved(x, offset) for x in getattr(state, name)])
            check(device, state, assert_close)


@pytest.mark.parametrize("op", OPS)
def test_any_order_of_dimensions(device, assert_close, op):
    state = State(REORDERED, op=op).change(reordered)
    assert not state.params[0].is_contiguous() and not state.params[1].is_contiguous()
    check(device, state, assert_close)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("more", [0, 1, 300])
def test_many_tensors(device, assert_close, op, more):
    """Tests as many tensors as fill a launch, and more; some are empty, also the last one."""
    count = MOST[op] + more
    state = State([(7 * i) % 41 for i in range(count)] + [0], op=op)
    check(device, state, assert_close)


@pytest.mark.parametrize("op", OPS)
def test_threads_share_tensors(several_threads, assert_close, op):
    check("cpu", State([50_001, 7, 30_000, 0, 200_003], op=op), assert_close)


@pytest.mark.parametrize("op", OPS)
def test_no_tensors(device, op):
    for state in (State([], op=op), State([0, 0], op=op)):
        optimize(device, state)
        assert state.step is None or float(state.step) == 4


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("value", [1.0, -2.0, math.inf, math.nan, 1e-40])
def test_found_inf_skips_everything(device, op, value):
    for kind in (KINDS[0], (BF16, F32, F32, True)):
        state = State(SIZES, kind, op=op)
        state.grads[3][5] = math.inf
        before = copy.deepcopy(state)
        optimize(device, state, found_inf=torch.tensor([value]))
        same(before, state)


@pytest.mark.parametrize("op", OPS)
def test_the_same_bits_each_time(device, op):
    runs = [State([70_001, 5], op=op) for _ in range(2)]
    for state in runs:
        optimize(device, state)
    same(*runs)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("kind", KINDS)
def test_reference(reference, op, kind):
    """The plugin's fallback does the same as the plugin."""
    ours, other = State([0, 5, 700], kind, op=op), State([0, 5, 700], kind, op=op)
    options = {"grad_scale": torch.tensor(3.0), "maximize": True, "weight_decay": 0.1}
    found = optimize("cpu", ours, **options)
    torch.testing.assert_close(other.call(getattr(reference, op), **options), found)
    for (_, x), (_, y) in zip(ours.lists(), other.lists(), strict=True):
        torch.testing.assert_close(x, y)
    before = copy.deepcopy(other)
    other.call(getattr(reference, op), found_inf=torch.tensor(1.0))
    same(before, other)


@pytest.mark.parametrize("op", OPS)
def test_bad_arguments_are_told_by_name(device, op):
    def refused(text, change=lambda state: None, **options):
        state = State([(2, 4), (3, 4), (0,)], op=op)
        change(state)
        with pytest.raises(opdock.OpdockError, match=text):
            optimize(device, state, **options)

    last = State([], op=op).states[-1]
    refused(r"'grads': found 2 tensors, wanted 3", lambda state: state.grads.pop())
    refused(rf"'{last}': found 2 tensors", lambda state: getattr(state, last).pop())
    refused(r"'masters'.*beside params of float32", lambda s: setattr(s, "masters", s.grads))
    refused(r"shared with", lambda state: getattr(state, last).__setitem__(1, state.params[1]))
    refused(r"'lr_tensor'.*float64", lr_tensor=torch.tensor(1.0, dtype=F64))
    refused(r"'grad_scale': found shape \[0\]", grad_scale=torch.ones(0))
    refused(r"'found_inf'.*bool", found_inf=torch.tensor(True))
    for name in ("lr", "weight_decay"):
        refused(rf"'{name}': found -1, wanted a number that is not negative", **{name: -1.0})


# ---- Adagrad


def test_as_torchs_adagrad_does(device):
    """Does 20 steps with torch.optim.Adagrad in float64 and with the op; one of them is skipped."""
    state = State([5, 300, 1], op="adagrad_").change(lambda x, _: x.abs())
    theirs = [torch.nn.Parameter(p.double()) for p in state.params]
    options = {"lr": 0.05, "weight_decay": 0.1, "maximize": True, "eps": 1e-6}
    optimizer = torch.optim.Adagrad(theirs, **options)
    for p, total in zip(theirs, state.state_sums, strict=True):
        optimizer.state[p]["sum"].copy_(total)
    for turn in range(20):
        state.grads = State([5, 300, 1], seed=turn).grads
        optimize(device, state, found_inf=torch.tensor(float(turn == 7)), **options)
        for p, g in zip(theirs, state.grads, strict=True):
            p.grad = g.double()
        if turn != 7:
            optimizer.step()
    for ours, their in zip(state.params, theirs, strict=True):
        torch.testing.assert_close(ours.double(), their.detach(), rtol=2e-6, atol=2e-6)


# ---- LAMB


def test_trust_ratio_of_zeros_is_1(device):
    """Weights of 0, changes of 0, and tensors without elements; the last chunk is not whole."""
    state = State([1025, 1025, 0, 1025], op="lamb_")
    state.params[0].zero_()
    for name in ("grads", "exp_avgs"):
        getattr(state, name)[1].zero_()
    before = state.params[1].clone()
    # Without eps, padding of a chunk would be 0 / 0.
    found = optimize(device, state, eps=0.0)
    assert found[:3].tolist() == [1, 1, 1] and 0.01 <= found[3] <= 10 and found[3] != 1
    assert torch.equal(before, state.params[1])
    assert all(x.isfinite().all() for _, x in state.lists())


def test_skipped_step_has_ratios_of_0(device):
    found = optimize(device, State([5, 0, 9], op="lamb_"), found_inf=torch.ones(1))
    assert found.tolist() == [0, 0, 0]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_lamb_keeps_nan(device, value):
    """One gradient that is not finite makes the ratio NaN, as the norms are, and then all of its
    tensor. Other tensors do not see it."""
    state = State([3000, 70], op="lamb_")
    state.grads[0][17] = value
    found = optimize(device, state)
    assert state.params[0].isnan().all() and found[0].isnan()
    assert state.params[1].isfinite().all() and found[1].isfinite()


# ---- Lion


SPECIAL = [0.0, -0.0, 1e-45, -1e-40, 1e-20, 3e19, -1e20, math.inf, -math.inf, math.nan]


def test_lion_with_special_numbers(device):
    """For every combination of gradient, average and weight, results are finite, infinite or NaN as
    those of the formula in float64."""
    values = torch.tensor(SPECIAL)
    state = State([len(SPECIAL) ** 3], op="lion_")
    state.grads = [values.repeat_interleave(len(SPECIAL) ** 2)]
    state.exp_avgs = [values.repeat_interleave(len(SPECIAL)).repeat(len(SPECIAL))]
    state.params = [values.repeat(len(SPECIAL) ** 2)]
    wanted = lion(state, weight_decay=0.01)
    optimize(device, state, weight_decay=0.01)
    for name in ("params", "exp_avgs"):
        x, y = getattr(state, name)[0].double(), wanted[name, 0][0]
        # Numbers that no float32 can tell from 0 have a sign in float64 alone.
        sure = (
            (wanted["exp_avgs", 0][0].abs() > 1e-36) | (wanted["exp_avgs", 0][0] == 0) | y.isnan()
        )
        torch.testing.assert_close(x[sure], y[sure], rtol=1e-5, atol=1e-30, equal_nan=True)


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_lion_leaves_params_without_gradient(device, dtype):
    """The sign of 0 is 0: such a param stays, also if the zeros are negative."""
    state = State([1000], (dtype, dtype, dtype, False), op="lion_")
    state.exp_avgs[0].zero_()
    state.grads[0].zero_()
    state.grads[0][::2] = -0.0
    state.exp_avgs[0][::3] = -0.0
    before = state.params[0].clone()
    optimize(device, state, lr=0.1)
    assert torch.equal(before, state.params[0])


def test_lions_averages_of_equal_numbers_keep_their_value(device):
    """The average of a constant would drift with 0.99999 as a float."""
    state = State([256], op="lion_")
    state.grads[0].fill_(0.7)
    state.exp_avgs[0].fill_(0.7)
    for _ in range(3 if device != "cpu" else 2000):
        optimize(device, state, beta2=0.99999)
    torch.testing.assert_close(state.exp_avgs[0], torch.full((256,), 0.7), rtol=1e-6, atol=0)
