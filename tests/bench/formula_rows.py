# SPDX-License-Identifier: Apache-2.0
"""Times row ops as formulas beside the hand-written kernels of the same ops, on a GPU.

It tells in which forms a generated kernel is as fast as the one that a plugin brings. Each pair's
results are compared first. The time is the median of one call by CUDA events with a cold L2; the
two take turns. `ratio` is the hand-written kernel's time divided by the formula's: above 1 the
formula is faster."""

import argparse
import statistics

import record
import torch
from gpu_ops import DTYPES, SHAPES, timed_ms

import opdock

ROUNDS = 3

LAYER_NORM = """
d = x - mean(x)
return d * rsqrt(mean(d * d) + 1e-5) * weight + bias
"""


def cases(x):
    """Yields (name, the plugin's call, the formula's call) for the shape and dtype of x."""
    ops, make = opdock.ops, opdock.formula
    weight, bias = (torch.randn(x.shape[-1], device=x.device, dtype=x.dtype) for _ in range(2))
    other = torch.randn_like(x)
    soft = torch.softmax(x, -1)
    softmax = make("e = exp(x - amax(x))\nreturn e / sum(e)")
    yield "softmax", lambda: ops.softmax(x), lambda: softmax(x)
    log_softmax = make("d = x - amax(x)\nreturn d - log(sum(exp(d)))")
    yield "log_softmax", lambda: ops.log_softmax(x), lambda: log_softmax(x)
    softmax_backward = make("y * (grad - sum(grad * y))")
    yield (
        "softmax_backward",
        lambda: ops.softmax_backward(other, soft),
        lambda: softmax_backward(soft, other),
    )
    rms_norm = make("x * rsqrt(mean(x * x) + 1e-5) * weight")
    yield "rms_norm", lambda: ops.rms_norm(x, weight, eps=1e-5), lambda: rms_norm(x, weight)
    layer_norm = make(LAYER_NORM)
    yield (
        "layer_norm",
        lambda: ops.layer_norm(x, weight, bias, eps=1e-5),
        lambda: layer_norm(x, weight, bias),
    )
    add_rms_norm = make(
        "h = x + residual\nreturn h * rsqrt(mean(h * h) + 1e-5) * weight, h",
    )
    yield (
        "add_rms_norm",
        lambda: ops.add_rms_norm(x, other, weight, eps=1e-5),
        lambda: add_rms_norm(x, other, weight),
    )


def check(name, ours, theirs):
    """Raises AssertionError if the two calls' results differ by more than their dtype's rounding
    and the sums' order explain."""
    results = [ours(), theirs()]
    first, second = (r if isinstance(r, tuple) else (r,) for r in results)
    for a, b in zip(first, second, strict=True):
        exact = a.dtype == torch.float32
        limit = 2e-5 if exact else 2 * torch.finfo(a.dtype).eps
        torch.testing.assert_close(b, a, rtol=limit, atol=limit, msg=lambda m: f"{name}: {m}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--dtypes", metavar="DTYPE,…", default=",".join(DTYPES))
    parser.add_argument("--shapes", metavar="SHAPE,…", default=",".join(SHAPES))
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("  skipped: found no CUDA GPU")
        return
    rows = []
    for shape in arguments.shapes.split(","):
        for dtype in arguments.dtypes.split(","):
            size = [int(n) for n in shape.split("x")]
            x = torch.randn(size, device="cuda", dtype=getattr(torch, dtype))
            for name, ours, formula in cases(x):
                check(name, ours, formula)
                times = [(timed_ms(ours)[0], timed_ms(formula)[0]) for _ in range(ROUNDS)]
                own, made = (statistics.median(column) for column in zip(*times, strict=True))
                case = f"{name} {shape} {dtype}"
                rows.append({"name": case, "peer": "opdock", "us": round(1000 * own, 2)})
                rows.append({"name": case, "peer": "formula", "us": round(1000 * made, 2)})
                print(f"  {case:<40} {1000 * own:9.1f} and {1000 * made:9.1f} µs, ratio "
                      f"{own / made:.3f}", flush=True)  # fmt: skip
    if arguments.record:
        record.append(arguments.record, "formula_rows", rows)


if __name__ == "__main__":
    main()
