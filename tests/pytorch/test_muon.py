# SPDX-License-Identifier: Apache-2.0
"""Tests opdock.torch.optim.Muon against the formulas in float64, and against torch's optimizer."""

import copy
import math

import pytest
import torch

import opdock.torch
from opdock.torch.optim import Muon

SHAPES = [(6, 10), (10, 6), (6, 10), (4, 4), (6, 10)]
BY = (3.4445, -4.7750, 2.0315)


def parameters(dtype=torch.float32):
    torch.manual_seed(5)
    return [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in SHAPES]


def set_gradients(params, turn):
    torch.manual_seed(100 + turn)
    for i, param in enumerate(params):
        gradient = torch.randn(param.shape).to(param.dtype)
        param.grad = None if (turn, i) == (1, 2) else gradient


def update(grad, buffer, momentum, nesterov):
    """Returns the orthogonalised update and the average after a step, in float64."""
    buffer = momentum * buffer + (1 - momentum) * grad
    x = momentum * buffer + (1 - momentum) * grad if nesterov else buffer
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = BY[0] * x + (BY[1] * gram + BY[2] * gram @ gram) @ x
    return x, buffer


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("adjust", [None, "match_rms_adamw"])
def test_steps(nesterov, adjust):
    """Some of one shape, which are a batch; one without a gradient in one step."""
    params = parameters()
    wide = [(param.detach().double(), torch.zeros(param.shape).double()) for param in params]
    options = {"lr": 0.1, "weight_decay": 0.2, "momentum": 0.9, "nesterov": nesterov}
    optimizer = Muon(params, **options, adjust_lr_fn=adjust)
    for turn in range(3):
        set_gradients(params, turn)
        optimizer.step()
        for i, (p, buffer) in enumerate(wide):
            if params[i].grad is None:
                continue
            x, buffer = update(params[i].grad.double(), buffer, 0.9, nesterov)
            rows, columns = p.shape
            ratio = 0.2 * math.sqrt(max(p.shape)) if adjust else math.sqrt(max(1, rows / columns))
            wide[i] = p * (1 - 0.1 * 0.2) - 0.1 * ratio * x, buffer
    for param, (p, buffer) in zip(params, wide, strict=True):
        assert (param - p).abs().max() < 2e-5
        assert (optimizer.state[param]["momentum_buffer"] - buffer).abs().max() < 1e-6


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon: 2.9 or newer")
def test_the_state_is_torchs():
    """torch's optimizer goes on with ours, and ours with torch's; torch's iterates in bfloat16."""
    params, others = parameters(), parameters()
    ours, theirs = Muon(params, lr=0.1), torch.optim.Muon(others, lr=0.1)
    for turn in range(2):
        for some, optimizer in ((params, ours), (others, theirs)):
            set_gradients(some, turn)
            optimizer.step()
    assert set(ours.defaults) <= set(theirs.defaults)
    states = [copy.deepcopy(one.state_dict()) for one in (ours, theirs)]
    theirs.load_state_dict(states[0])
    ours.load_state_dict(states[1])
    for some, optimizer in ((params, ours), (others, theirs)):
        set_gradients(some, 7)
        optimizer.step()
    for param, other in zip(params, others, strict=True):
        assert (param - other).abs().max() < 0.02


def test_parameters_of_16_bits_and_a_closure():
    params = parameters(torch.bfloat16)
    before = [param.detach().clone() for param in params]
    optimizer = Muon(params, lr=0.1, weight_decay=0.0)

    def closure():
        optimizer.zero_grad()
        loss = sum(param.square().sum() for param in params)
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert optimizer.step(closure) < first
    for param, old in zip(params, before, strict=True):
        assert param.dtype == torch.bfloat16 and not torch.equal(param, old)


def test_what_is_refused():
    one = torch.nn.Parameter(torch.ones(2, 3))
    for options in ({"lr": -1}, {"eps": -1}, {"weight_decay": float("nan")}, {"momentum": -0.1}):
        with pytest.raises(ValueError, match="Muon: .*: found .*, wanted a number from 0 on"):
            Muon([one], **options)
    with pytest.raises(ValueError, match="Muon: adjust_lr_fn: found 'no', wanted one of None"):
        Muon([one], adjust_lr_fn="no")
    with pytest.raises(ValueError, match=r"found a parameter of shape \(3,\) and torch.float32"):
        Muon([torch.nn.Parameter(torch.ones(3))])
    one.grad = torch.ones(2, 3).to_sparse()
    with pytest.raises(RuntimeError, match="Muon: found a sparse gradient"):
        Muon([one]).step()
    assert opdock.torch.optim.Muon is Muon
