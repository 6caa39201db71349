# SPDX-License-Identifier: Apache-2.0
"""Tests adam_ and adamw_ on every device, against the formulas in float64 and torch's own
optimizers."""

import copy
import sys
from pathlib import Path

import pytest
import torch

import opdock
from opdock.testing import HALF_ULP

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lists_cases import BF16, F16, F32, F64, KINDS, REORDERED, SIZES, State, moved, reordered, same
from lists_cases import optimize as optimize_state

OPS = ["adamw_", "adam_"]


def optimize(device, name, state, **options):
    state.op = name
    assert optimize_state(device, state, **options) is None
    return state


def oracle(name, state, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=None, **others):
    """Returns {(list, number): (value, its error's scale)} after the step, in float64."""
    decay = {"adamw_": 0.01, "adam_": 0.0}[name] if weight_decay is None else weight_decay
    lr = float(others.get("lr_tensor", lr))
    t = float(state.step) + 1
    found = {}
    for i, weight in enumerate(state.masters or state.params):
        w, g, m, v = (
            x.double() for x in (weight, state.grads[i], state.exp_avgs[i], state.exp_avg_sqs[i])
        )
        g = g / float(others.get("grad_scale", 1)) * (-1 if others.get("maximize") else 1)
        if name == "adam_":
            g, size = g + decay * w, g.abs() + decay * w.abs()
        else:
            w, size = w - lr * decay * w, g.abs()
        size = beta1 * m.abs() + (1 - beta1) * size
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        factor = lr / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + eps)
        found["exp_avgs", i] = m, size
        found["exp_avg_sqs", i] = v, v + (1 - beta2) * (size / max(1 - beta1, 1e-9)) ** 2
        found["params", i] = found["masters", i] = w - factor * m, w.abs() * 0.1 + factor * size
    return found


def check(device, name, state, assert_close, **options):
    """Does one step, and asserts that each number is as exact as float32 arithmetic allows."""
    wanted = oracle(name, state, **options)
    step = float(state.step)
    optimize(device, name, state, **options)
    assert float(state.step) == step + 1
    for key, x in state.lists():
        if key[0] != "grads":
            value, scale = wanted[key]
            # The oracle's own error matters only when compared with float64.
            precise = 16 * HALF_ULP["float64"] if x.dtype == F64 else 6 * HALF_ULP["float32"]
            assert_close(x, value, precise, scale)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_step(device, assert_close, name, kind):
    check(device, name, State(SIZES, kind), assert_close, weight_decay=0.1)


@pytest.mark.parametrize("name", OPS)
def test_float64_is_for_the_cpu(device, assert_close, name):
    state = State(SIZES, (F64, F64, F64, False))
    if device != "cpu":
        with pytest.raises(opdock.OpdockError, match=r"'params\[0\]'.*float64"):
            optimize(device, name, state)
        return
    check(device, name, state, assert_close, weight_decay=0.1, maximize=True, eps=1e-3)


OPTIONS = [
    {},
    {"maximize": True, "weight_decay": 0.2},
    {"grad_scale": torch.tensor(1024.0)},
    {"grad_scale": torch.tensor([0.3]), "weight_decay": 0.1, "maximize": True},
    {"lr_tensor": torch.tensor(0.25), "lr": 7.0},
    {"found_inf": torch.tensor(0.0), "lr": 0.0},
    {"beta1": 0.0, "beta2": 0.0, "weight_decay": 0.0},
    {"beta1": 0.5, "beta2": 0.75, "eps": 0.1},
    {"beta1": 0.99, "beta2": 0.99999, "eps": 1e-4},
]


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_options(device, assert_close, name, number):
    for kind in (KINDS[0], (F16, F16, F32, True)):
        for step in (0.0, 1.0, 12345.0):
            check(device, name, State([129], kind, step), assert_close, **OPTIONS[number])


@pytest.mark.parametrize("kind", [KINDS[0], (BF16, BF16, F32, True), (F16, F16, F16, False)])
def test_any_alignment(device, assert_close, kind):
    """One list is misaligned, or all are, also by single elements; sizes are around a vector and a
    chunk."""
    for which in ("params", "grads", "exp_avgs", "exp_avg_sqs", "masters", "all"):
        for offset in (1, 2, 4):
            state = State([1023, 1024, 1025, 4, 5, 2051], kind)
            for name in state.names():
                if which in (name, "all") and getattr(state, name):
                    setattr(state, name, [moved(x, offset) for x in getattr(state, name)])
            check(device, "adamw_", state, assert_close)


def test_any_order_of_dimensions(device, assert_close):
    state = State(REORDERED).change(reordered)
    assert not state.params[0].is_contiguous() and not state.params[1].is_contiguous()
    check(device, "adamw_", state, assert_close)


@pytest.mark.parametrize("count", [1, 75, 76, 77, 152, 153, 1000])
def test_many_tensors(device, assert_close, count):
    """As many tensors as fill launches, and one more; some of them are empty."""
    state = State([(7 * i) % 41 for i in range(count)])
    check(device, "adamw_", state, assert_close)


def test_threads_share_tensors(several_threads, assert_close):
    check("cpu", "adamw_", State([50_001, 7, 30_000, 0, 20_003]), assert_close)


def test_no_tensors(device):
    for state in (State([]), State([0, 0])):
        optimize(device, "adamw_", state)
        assert float(state.step) == 4


@pytest.mark.parametrize("value", [1.0, -2.0, float("inf"), float("nan"), 1e-40])
def test_found_inf_skips_everything(device, value):
    for kind in (KINDS[0], (BF16, F32, F32, True)):
        state = State(SIZES, kind)
        state.grads[3][5] = float("inf")
        before = copy.deepcopy(state)
        optimize(device, "adamw_", state, found_inf=torch.tensor([value]))
        same(before, state)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("maximize", [False, True])
def test_as_torch_does(device, name, maximize):
    """Does 40 steps with torch.optim and with the op; one of them is skipped."""
    kind = {"adamw_": torch.optim.AdamW, "adam_": torch.optim.Adam}[name]
    options = {"lr": 0.02, "weight_decay": 0.1, "maximize": maximize, "eps": 1e-6}
    start = State([5, 300, 1], step=0.0)
    theirs = [torch.nn.Parameter(p.double()) for p in start.params]
    optimizer = kind(theirs, betas=(0.8, 0.95), **options)
    for state in (start,):
        state.exp_avgs = [torch.zeros_like(x) for x in state.params]
        state.exp_avg_sqs = [torch.zeros_like(x) for x in state.params]
    for turn in range(40):
        start.grads = State([5, 300, 1], seed=turn).grads
        skipped = torch.tensor(float(turn == 7))
        optimize(device, name, start, beta1=0.8, beta2=0.95, found_inf=skipped, **options)
        if turn == 7:
            continue
        for p, g in zip(theirs, start.grads, strict=True):
            p.grad = g.double()
        optimizer.step()
    assert float(start.step) == 39
    for ours, their in zip(start.params, theirs, strict=True):
        torch.testing.assert_close(ours.double(), their.detach(), rtol=2e-6, atol=2e-6)


def fused(name, state, **options):
    """Does one step with torch's own kernel."""
    function = {"adamw_": torch._fused_adamw_, "adam_": torch._fused_adam_}[name]
    steps = [state.step + 1 for _ in state.params]
    lists = (state.params, state.grads, state.exp_avgs, state.exp_avg_sqs, [], steps)
    usual = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}
    function(*lists, amsgrad=False, maximize=False, **(usual | options))


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_error_is_not_above_torchs(device, name, dtype):
    """Compares the largest error and the mean square error of each list. Weights are small, so that
    an update is not lost in their rounding."""
    ours = State([100_000], (dtype, dtype, dtype, False), step=2.0)
    ours.params[0] *= 1e-3
    ours.exp_avg_sqs[0].clamp_(min=0.01)  # else only a few huge updates would matter
    theirs = copy.deepcopy(ours)
    wanted = oracle(name, ours, weight_decay=0.01)
    optimize(device, name, ours, weight_decay=0.01)
    fused(name, theirs)
    for (key, x), (_, y) in zip(ours.lists(), theirs.lists(), strict=True):
        if key[0] == "grads":
            continue
        errors = [(z.double() - wanted[key][0]).abs() for z in (x, y)]
        # The largest of so many errors is a matter of luck; the mean is not.
        assert errors[0].max() <= errors[1].max() * 1.25, key
        assert errors[0].square().mean() <= errors[1].square().mean() * 1.01, key


def test_averages_of_equal_numbers_keep_their_value(device):
    """With 0.999 as a float, the average of a constant would drift by 1 in 60,000."""
    state = State([256], step=0.0)
    state.grads[0].fill_(0.7)
    state.exp_avgs[0].fill_(0.7)
    state.exp_avg_sqs[0].fill_(0.49)
    for _ in range(3):
        optimize(device, "adamw_", state)
    for _ in range(2000 if device == "cpu" else 0):
        optimize(device, "adamw_", state)
    torch.testing.assert_close(state.exp_avg_sqs[0], torch.full((256,), 0.49), rtol=1e-6, atol=0)


SPECIAL = [0.0, -0.0, 1e-45, -1e-40, 1e-20, 3e19, -1e20, float("inf"), -float("inf"), float("nan")]


@pytest.mark.parametrize("name", OPS)
def test_special_numbers(device, name):
    """For every combination of gradient, averages and weight, the results are finite, infinite or
    NaN as torch's are."""
    values = torch.tensor(SPECIAL)
    grads = values.repeat_interleave(len(SPECIAL) ** 2)
    averages = values.repeat_interleave(len(SPECIAL)).repeat(len(SPECIAL))
    weights = values.repeat(len(SPECIAL) ** 2)
    ours = State([grads.numel()])
    ours.params, ours.grads = [weights.clone()], [grads]
    ours.exp_avgs, ours.exp_avg_sqs = [averages.clone()], [averages.abs()]
    theirs = copy.deepcopy(ours)
    optimize(device, name, ours, weight_decay=0.01)
    fused(name, theirs)
    # torch's average of an infinite one is NaN, because it adds their difference: these are left
    # out.
    usual = ~averages.isinf()
    for x, y in zip((ours.params, ours.exp_avgs), (theirs.params, theirs.exp_avgs), strict=True):
        torch.testing.assert_close(x[0][usual], y[0][usual], rtol=1e-5, atol=1e-30, equal_nan=True)
    x, y = ours.exp_avg_sqs[0], theirs.exp_avg_sqs[0]
    large = grads.abs() == 1e20  # the square overflows without being added to anything
    torch.testing.assert_close(x[~large], y[~large], rtol=1e-5, atol=1e-44, equal_nan=True)


def test_the_same_bits_each_time(device):
    runs = [optimize(device, "adamw_", State([70_001, 5])) for _ in range(2)]
    same(*runs)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("kind", KINDS)
def test_reference(reference, name, kind):
    """The plugin's fallback does the same as the plugin."""
    ours, other = State([0, 5, 700], kind), State([0, 5, 700], kind)
    options = {"grad_scale": torch.tensor(3.0), "maximize": True, "weight_decay": 0.1}
    optimize("cpu", name, ours, **options)
    other.call(getattr(reference, name), **options)
    for (_, x), (_, y) in zip(ours.lists(), other.lists(), strict=True):
        torch.testing.assert_close(x, y)
    before = copy.deepcopy(other)
    other.call(getattr(reference, name), found_inf=torch.tensor(1.0))
    same(before, other)


# ---- on a GPU that torch reaches


def to(device, state):
    state.change(lambda x, _: x.to(device))
    state.step = state.step.to(device)
    return state


@pytest.mark.gpu
def test_each_replay_of_a_graph_is_a_step(cuda):
    sizes = [(37 * i) % 5000 for i in range(200)]
    wanted, state = State(sizes, step=0.0), to(cuda, State(sizes, step=0.0))
    found_inf, lr = torch.zeros(1, device=cuda), torch.full((), 0.01, device=cuda)
    opdock.load("adamw_", device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        state.call(opdock.ops.adamw_, found_inf=found_inf, lr_tensor=lr)
    for turn in range(5):
        found_inf.fill_(float(turn == 2))
        lr.fill_(0.01 / (turn + 1))
        graph.replay()
        options = {"found_inf": torch.tensor(float(turn == 2)), "lr": 0.01 / (turn + 1)}
        optimize("cpu", "adamw_", wanted, **options)
    assert float(state.step) == float(wanted.step) == 4
    for (_, x), (_, y) in zip(state.lists(), wanted.lists(), strict=True):
        torch.testing.assert_close(x.cpu(), y, rtol=2e-6, atol=2e-6)


@pytest.mark.gpu
def test_on_another_stream(cuda):
    wanted, state = State([100_000] * 100), to(cuda, State([100_000] * 100))
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(10_000_000)
        for p in state.params:
            p.mul_(2)
        state.call(opdock.ops.adamw_)
        total = sum(p.double().sum() for p in state.params)
    torch.cuda.synchronize()
    for p in wanted.params:
        p.mul_(2)
    optimize("cpu", "adamw_", wanted)
    for (_, x), (_, y) in zip(state.lists(), wanted.lists(), strict=True):
        torch.testing.assert_close(x.cpu(), y, rtol=1e-6, atol=1e-6)
    assert abs(float(total) - sum(float(p.double().sum()) for p in wanted.params)) < 1


@pytest.mark.gpu
def test_more_than_2_to_the_31_elements(cuda):
    size = 2**31 + 5
    if torch.cuda.mem_get_info()[0] < 9 * size:
        pytest.skip("needs 20 GB of free GPU memory")
    lists = [torch.ones(size, device=cuda, dtype=BF16) for _ in range(4)]
    lists[1][-40:] = 2
    step = torch.zeros((), device=cuda)
    opdock.ops.adamw_(*([x] for x in lists), step, lr=0.5)
    # 1 - 0.5 * 0.01 - 0.5 / 0.1 * (0.9 + 0.1 * g) / sqrt((0.999 + 0.001 * g * g) / 0.001)
    assert lists[2][-40:].float().tolist() == [torch.tensor(1.1).bfloat16().item()] * 40
    assert lists[2][:-40].amin() == lists[2][:-40].amax() == 1
