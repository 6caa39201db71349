# SPDX-License-Identifier: Apache-2.0
"""Times ops on the CPU next to what a user of PyTorch writes, on one thread and on all cores.

Each plugin's bench_*.py defines cpu_candidates(shape, dtype), which lists what is timed: (op,
whose, function) with whose "opdock" or "torch", or "torch, …" for another way to write it, of which
the fastest counts. The list is empty for a shape that does not suit its ops. Its CPU_SHAPES are
timed only for that plugin. The two are called alternately, results are allocated anew in each call,
and medians are compared. Freed memory stays with the process: otherwise both would measure how fast
the kernel hands out pages."""

import argparse
import ctypes
import os
import statistics
import time
from collections import defaultdict

import record
import torch
from gpu_ops import benches

# Rows of hidden sizes and of vocabularies, and attention scores.
SHAPES = [(64, 1024), (512, 384), (512, 768), (4096, 1024), (32, 8192), (8, 131072)]
SHAPES += [(8, 12, 128, 128), (1, 12, 512, 512)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SECONDS = 0.25  # for each op, shape, dtype and number of threads
# Parameters of glibc's mallopt().
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4


def keep_freed_memory(of_any_size=False):
    """Makes glibc's malloc keep freed memory: blocks of at most 32 MiB, which is glibc's highest
    M_MMAP_THRESHOLD, or of any size."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(M_TRIM_THRESHOLD, 2**30)
        mallopt(M_MMAP_THRESHOLD, 2**25)
        if of_any_size:
            mallopt(M_MMAP_MAX, 0)


def medians_us(functions):
    """Returns {whose: median time of a call in µs} of functions that are called alternately."""
    times = defaultdict(list)
    for function in functions.values():
        for _ in range(3):
            function()
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for whose, function in functions.items():
            start = time.perf_counter()
            function()
            times[whose].append(time.perf_counter() - start)
    return {whose: 1e6 * statistics.median(taken) for whose, taken in times.items()}


def cases(modules, shape, dtype):
    """Returns {op: {whose: function}} of one shape and dtype."""
    ops = defaultdict(dict)
    for module in modules:
        for op, whose, function in module.cpu_candidates(shape, dtype):
            ops[op][whose] = function
    return ops


def all_cases(modules):
    """Yields (shape, dtype, {op: {whose: function}}) for all shapes, including those that a plugin
    defines for itself."""
    alone = [(shape, [m]) for m in modules for shape in getattr(m, "CPU_SHAPES", ())]
    for shape, of in [(shape, modules) for shape in SHAPES] + alone:
        for dtype in DTYPES:
            yield shape, dtype, cases(of, shape, dtype)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--ops", metavar="WORD", default="", help="those whose name has WORD")
    arguments = parser.parse_args()
    keep_freed_memory()
    modules = [module for module in benches() if hasattr(module, "cpu_candidates")]
    results = []
    for threads in sorted({1, len(os.sched_getaffinity(0))}):
        torch.set_num_threads(threads)  # Opdock's ops use the same number
        for shape, dtype, ops in all_cases(modules):
            for op, functions in ops.items():
                if arguments.ops not in op:
                    continue
                taken = medians_us(functions)
                name = f"{op} {'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}"
                name += f", {threads} thread{'s' if threads > 1 else ''}"
                own, others = taken.pop("opdock"), taken
                taken = {"opdock": own, "torch": min(others.values())}
                ratio = taken["torch"] / taken["opdock"]
                print(
                    f"  {name:<54} {taken['opdock']:9.1f} µs, torch {taken['torch']:9.1f} µs, "
                    f"{ratio:6.2f}×",
                    flush=True,
                )
                row = {f"{whose}_us": round(us, 2) for whose, us in taken.items()}
                results.append({"name": name, **row, "torch_over_opdock": round(ratio, 3)})
    if arguments.record:
        record.append(arguments.record, "cpu_ops", results)


if __name__ == "__main__":
    main()
