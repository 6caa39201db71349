# SPDX-License-Identifier: Apache-2.0
"""Memory-bound ops on the GPU beside a device copy of the same shape and dtype, and PyTorch.

Bytes are those the op must move: each input read once, each output written once. GB/s is bytes over
the median time of one call, by CUDA events around each call.
"""

import argparse
import statistics

import record
import torch
import torch.nn.functional as F

import opdock

SHAPES = [(8192, 8192), (65536, 1024), (2048, 32768)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def median_ms(function, repeats=50):
    """Median time of one call on the current stream, in milliseconds."""
    for _ in range(5):
        function()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in events:
        start.record()
        function()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events)


def candidates(x, residual, weight, bias):
    """(op, peer, tensors moved, function) for one shape and dtype."""
    torch._dynamo.reset()  # each shape and dtype compiled for itself, none over the limit
    y = torch.empty_like(x)
    width = x.shape[-1:]
    yield "copy", "torch", 2, lambda: y.copy_(x)
    yield "softmax", "opdock", 2, lambda: opdock.ops.softmax(x)
    yield "softmax", "torch", 2, lambda: torch.softmax(x, -1)
    compiled = torch.compile(lambda a: torch.softmax(a, -1), dynamic=False)
    yield "softmax", "torch.compile", 2, lambda: compiled(x)
    yield "layer_norm", "opdock", 2, lambda: opdock.ops.layer_norm(x, weight, bias)
    yield "layer_norm", "torch", 2, lambda: F.layer_norm(x, width, weight, bias)
    yield (
        "add_layer_norm",
        "opdock",
        4,
        lambda: opdock.ops.add_layer_norm(x, residual, weight, bias),
    )

    def both(a, b):
        total = a + b
        return F.layer_norm(total, width, weight, bias), total

    fused = torch.compile(both, dynamic=False)
    yield "add_layer_norm", "torch.compile", 4, lambda: fused(x, residual)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FILE")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("  skipped: found no CUDA GPU")
        return
    results = []
    for shape in SHAPES:
        for dtype in DTYPES:
            x, residual = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(2))
            weight, bias = (torch.randn(shape[-1], device="cuda", dtype=dtype) for _ in range(2))
            copy = 0.0
            for op, peer, tensors, function in candidates(x, residual, weight, bias):
                rate = tensors * x.numel() * x.element_size() / median_ms(function) / 1e6
                copy = copy or rate
                name = f"{op} {shape[0]}x{shape[1]} {str(dtype).removeprefix('torch.')}"
                print(f"  {name:<38} {peer:<14} {rate:7.0f} GB/s {rate / copy:6.1%} of copy")
                results.append({"name": name, "peer": peer, "gb_per_s": round(rate, 1)})
    if arguments.record:
        record.append(arguments.record, "gpu_ops", results)


if __name__ == "__main__":
    main()
