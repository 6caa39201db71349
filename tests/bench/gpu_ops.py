# SPDX-License-Identifier: Apache-2.0
"""Memory-bound ops on the GPU beside a device copy of the same shape and dtype, and PyTorch.

What is timed of a plugin says candidates(x) of its bench_*.py. Bytes are those the op must move:
each input read once, each output written once. GB/s is bytes over the median time of one call, by
CUDA events around each call.
"""

import argparse
import importlib.util
import statistics
from pathlib import Path

import record
import torch

import opdock

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"

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


def benches():
    """The bench_*.py of the plugins that can be used here, as modules."""
    usable = {plugin["name"] for plugin in opdock.plugins() if plugin["usable"]}
    for path in sorted(PLUGINS.glob("*/bench_*.py")):
        if path.parent.name in usable:
            spec = importlib.util.spec_from_file_location(path.stem, path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            yield module


def candidates(modules, x):
    """(op, whose, tensors moved, function) for one shape and dtype."""
    torch._dynamo.reset()  # each shape and dtype compiled for itself, none over the limit
    y = torch.empty_like(x)
    yield "copy", "torch", 2, lambda: y.copy_(x)
    for module in modules:
        yield from module.candidates(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FILE")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("  skipped: found no CUDA GPU")
        return
    results = []
    modules = list(benches())
    for shape in SHAPES:
        for dtype in DTYPES:
            x = torch.randn(shape, device="cuda", dtype=dtype)
            copy = 0.0
            for op, peer, tensors, function in candidates(modules, x):
                rate = tensors * x.numel() * x.element_size() / median_ms(function) / 1e6
                copy = copy or rate
                name = f"{op} {shape[0]}x{shape[1]} {str(dtype).removeprefix('torch.')}"
                print(f"  {name:<38} {peer:<14} {rate:7.0f} GB/s {rate / copy:6.1%} of copy")
                results.append({"name": name, "peer": peer, "gb_per_s": round(rate, 1)})
    if arguments.record:
        record.append(arguments.record, "gpu_ops", results)


if __name__ == "__main__":
    main()
