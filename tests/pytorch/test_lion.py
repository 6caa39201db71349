# SPDX-License-Identifier: Apache-2.0
"""Tests opdock.torch.optim.Lion against the formulas in float64."""

import copy

import pytest
import torch

import opdock.torch


def parameters(dtype):
    torch.manual_seed(4)
    shapes = (3, 5), (7,), (2, 3, 4, 5), ()
    made = [torch.nn.Parameter(torch.randn(s, dtype=torch.float64).to(dtype)) for s in shapes]
    made[2].data = made[2].data.to(memory_format=torch.channels_last)
    return made


def set_gradients(made, turn):
    torch.manual_seed(turn)
    for i, one in enumerate(made):
        gradient = torch.randn(one.shape, dtype=torch.float64).to(one.dtype)
        one.grad = None if (turn, i) == (1, 0) else gradient


def written_out(weights, averages, made, lr, betas, weight_decay, maximize, factor=1.0):
    for w, m, one in zip(weights, averages, made, strict=True):
        if one.grad is None:
            continue
        g = one.grad.double() * (-factor if maximize else factor)
        w.mul_(1 - lr * weight_decay).sub_(lr * (betas[0] * m + (1 - betas[0]) * g).sign())
        m.mul_(betas[1]).add_((1 - betas[1]) * g)


OPTIONS = {
    "default": {},
    "all": {"lr": 0.1, "betas": (0.7, 0.9), "weight_decay": 0.3, "maximize": True},
    "tensor-lr": {"lr": torch.tensor(0.125)},
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", OPTIONS)
def test_steps(options, dtype):
    made = parameters(dtype)
    optimizer = opdock.torch.optim.Lion(made, **OPTIONS[options])
    used = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0, "maximize": False}
    used |= OPTIONS[options]
    used["lr"] = float(used["lr"])
    weights = [one.detach().double() for one in made]
    averages = [torch.zeros_like(w) for w in weights]
    for turn in range(4):
        set_gradients(made, turn)
        assert optimizer.step(lambda turn=turn: turn) == turn
        written_out(weights, averages, made, **used)
    bound = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 3e-2}[dtype]
    for one, w, m in zip(made, weights, averages, strict=True):
        torch.testing.assert_close(one.detach().double(), w, rtol=bound, atol=bound)
        state = optimizer.state[one]["exp_avg"]
        torch.testing.assert_close(state.double(), m, rtol=bound, atol=bound)


def test_a_saved_state_goes_on():
    made, others = parameters(torch.float32), parameters(torch.float32)
    ours, theirs = (opdock.torch.optim.Lion(x, lr=0.1, weight_decay=0.1) for x in (made, others))
    for turn in range(5):
        set_gradients(made, turn)
        set_gradients(others, turn)
        ours.step()
        if turn == 2:
            theirs = opdock.torch.optim.Lion(others, lr=0.7)
            theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
            for one, other in zip(made, others, strict=True):
                other.data.copy_(one.data)
        else:
            theirs.step()
    for one, other in zip(made, others, strict=True):
        assert torch.equal(one, other)


def test_what_grad_scaler_sets():
    made = parameters(torch.float32)
    optimizer = opdock.torch.optim.Lion(made, lr=0.1)
    assert optimizer._step_supports_amp_scaling
    weights = [one.detach().double() for one in made]
    averages = [torch.zeros_like(w) for w in weights]
    for turn, skipped in ((2, 0.0), (3, 1.0)):
        set_gradients(made, turn)
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0), torch.tensor(skipped)
        optimizer.step()
        if not skipped:
            written_out(weights, averages, made, 0.1, (0.9, 0.99), 0.0, False, 0.25)
    for one, w in zip(made, weights, strict=True):
        torch.testing.assert_close(one.detach().double(), w, rtol=1e-6, atol=1e-6)


def test_what_it_refuses():
    one = torch.nn.Parameter(torch.ones(3))
    for options in ({"lr": -1.0}, {"betas": (1.0, 0.9)}, {"weight_decay": float("nan")}):
        with pytest.raises(ValueError, match="Lion: .*: found .*wanted a number from 0 to"):
            opdock.torch.optim.Lion([one], **options)
    one.grad = torch.ones(3).to_sparse()
    with pytest.raises(RuntimeError, match="Lion: found a sparse gradient"):
        opdock.torch.optim.Lion([one]).step()
