# SPDX-License-Identifier: Apache-2.0
"""The demo's formula: a line of mathematics that becomes an op with a gradient."""

import statistics
import time

import torch
import torch.nn.functional as F

import opdock

TEXT = "gate * sigmoid(gate) * up"
SHAPE = (512, 2048)
RUNS = 40
BAR = 1e-6  # largest allowed error beside float64, relative to 1 + |x|


def in_torch(gate, up):
    return F.silu(gate) * up


def largest_error(function, gate, up):
    """Returns the largest error of the result and of both gradients beside float64, relative to
    1 + |x|."""
    found = []
    for compute, dtype in ((function, torch.float32), (in_torch, torch.float64)):
        inputs = [x.to(dtype, copy=True).requires_grad_() for x in (gate, up)]
        result = compute(*inputs)
        result.sum().backward()
        found.append([result.detach(), *(x.grad for x in inputs)])
    return max(
        ((a.double() - b).abs() / (1 + b.abs())).max().item() for a, b in zip(*found, strict=True)
    )


def timed(functions, gate, up):
    """Returns each function's times in milliseconds, of calls in turns."""
    times = [[] for _ in functions]
    for _ in range(RUNS):
        for function, taken in zip(functions, times, strict=True):
            start = time.perf_counter()
            function(gate, up)
            if gate.is_cuda:
                torch.cuda.synchronize()
            taken.append(1e3 * (time.perf_counter() - start))
    return times


def show(device):
    """Prints the formula, how exact it is, and its time beside torch's; returns the error."""
    function = opdock.formula(TEXT)
    torch.manual_seed(0)
    gate, up = (torch.randn(SHAPE, device=device) for _ in range(2))
    print(f'silu_mul = opdock.formula("{TEXT}")')
    error = largest_error(function, gate, up)
    print(f"Largest relative error of silu_mul(gate, up) and of both gradients: {error:.1e}")
    ours, torchs = (statistics.median(times) for times in timed([function, in_torch], gate, up))
    print(
        f"Time for {SHAPE[0]} x {SHAPE[1]} floats, medians of {RUNS} calls in turns: PyTorch's two "
        f"ops {torchs:.2f} ms, the formula {ours:.2f} ms"
    )
    return error
