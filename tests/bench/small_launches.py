# SPDX-License-Identifier: Apache-2.0
"""Times small launches on the GPU, by duration instead of throughput, next to PyTorch's.

For each op: one call between two events with a cold L2, as gpu_ops.py times it (event_us), and a
node of a CUDA graph that is a chain of such calls (node_us: the graph's time divided by its calls).
Opdock's are programmatic launches in both, as in any stream (docs/concepts/performance.md).
"""

import argparse
import statistics

import gpu_ops
import peers
import record
import torch

OPS = ("softmax", "layer_norm", "rms_norm", "add_layer_norm", "silu")
SHAPES = [(16, 1024), (4, 4096)]
CALLS = 200  # calls in a graph


def node_us(function):
    """Returns the microseconds of a call in a chain of them, with its data in the L2."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(CALLS):
            function()
    for _ in range(3):
        graph.replay()
    times = []
    for _ in range(30):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / CALLS)
    return statistics.median(times)


def candidates(x):
    """Yields (op, whose, function) of all benches and of torch.compile, and a copy as the lower
    bound."""
    out = torch.empty_like(x)
    yield "copy", "torch", lambda: out.copy_(x)
    for module in gpu_ops.benches():
        for op, whose, _, function in module.candidates(x):
            if op not in OPS:
                continue
            yield op, whose, function
            if whose == "torch":
                for compiler, compiled in peers.compiled(op, function).items():
                    yield op, compiler, compiled


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("  skipped: found no CUDA GPU")
        return
    results = []
    for shape in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            torch._dynamo.reset()
            x = torch.randn(shape, device="cuda").to(dtype)
            case = f"{'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}"
            for op, whose, function in candidates(x):
                (event, is_ahead), node = gpu_ops.timed_ms(function), node_us(function)
                event *= 1e3
                name = f"{op} {case}"
                print(f"  {name:<36} {whose:<14} {event:6.2f} us {node:6.2f} us a node")
                results.append(
                    {
                        "name": name,
                        "peer": whose,
                        "event_us": round(event, 2),
                        "node_us": round(node, 2),
                        **({} if is_ahead else {"host": True}),
                    }
                )
    if arguments.record:
        record.append(arguments.record, "small_launches", results)


if __name__ == "__main__":
    main()
