# SPDX-License-Identifier: Apache-2.0
"""Measures compiling a kernel at run time and launching it, next to CuPy and torch, on the GPU.

First: a process with an empty disk cache goes from the source's text to a kernel that can be
launched. Opening the compiler counts; importing the package and creating the CUDA context do not.
Second: the same in a new process that finds what the first one left. Both are in milliseconds;
minimum and median of processes. Launch: microseconds a launch, minimum and median of interleaved
repeats, each of fewer launches than the driver's queue holds. torch.cuda._compile_kernel keeps
nothing on disk."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import record
from timing import interleaved

SOURCE = """
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""
PEERS = ("opdock.compile", "cupy.RawKernel", "cupy.RawModule", "torch.cuda._compile_kernel")
BUILD = Path(os.environ.get("OPDOCK_BUILD_DIR", Path(__file__).resolve().parents[2] / "build"))


def make(peer):
    """Returns a function without arguments that compiles and returns the kernel; imports the peer
    now."""
    if peer == "opdock.compile":
        import opdock

        return lambda: opdock.compile(SOURCE).kernel("saxpy")
    if peer == "torch.cuda._compile_kernel":
        import torch

        return lambda: torch.cuda._compile_kernel(SOURCE, "saxpy")
    import cupy

    if peer == "cupy.RawModule":
        return lambda: cupy.RawModule(code=SOURCE).get_function("saxpy")

    def raw_kernel():
        kernel = cupy.RawKernel(SOURCE, "saxpy")
        kernel.compile()
        return kernel

    return raw_kernel


def child(peer):
    """Compiles once in this process and prints the milliseconds."""
    import torch

    torch.zeros(1, device="cuda")  # creates the context
    compile_now = make(peer)
    if peer.startswith("cupy"):
        import cupy

        cupy.zeros(1)
    torch.cuda.synchronize()
    start = time.perf_counter()
    compile_now()
    print(json.dumps((time.perf_counter() - start) * 1e3))


def processes(peer, repeats):
    """Returns ({"first": [ms, …], "second": [ms, …]}, problem)."""
    times = {"first": [], "second": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="bench-cache-", dir=BUILD) as folder:
            env = {**os.environ, "OPDOCK_CACHE_DIR": folder, "CUPY_CACHE_DIR": folder}
            for turn in times:
                command = [sys.executable, __file__, "--child", peer]
                done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
                if done.returncode:
                    lines = done.stderr.strip().splitlines()
                    return None, lines[-1] if lines else f"status {done.returncode}"
                times[turn].append(json.loads(done.stdout.splitlines()[-1]))
    return times, None


def launches(torch, repeats):
    """Returns {name: [µs a launch, …]}."""
    n = 1024
    x, y = torch.ones(n, device="cuda"), torch.ones(n, device="cuda")
    functions = {}
    saxpy = make("opdock.compile")()
    functions["opdock kernel"] = lambda: saxpy(4, 256, n, 2.0, x, y)
    try:
        torch_saxpy = make("torch.cuda._compile_kernel")()
        torch_saxpy((4, 1, 1), (256, 1, 1), (n, 2.0, x, y))
        functions["torch.cuda._compile_kernel"] = lambda: torch_saxpy(
            (4, 1, 1), (256, 1, 1), (n, 2.0, x, y)
        )
    except Exception as error:  # a private function: it may be missing or have changed
        print(f"  skipped: torch.cuda._compile_kernel ({type(error).__name__}: {error})")
    try:
        import cupy

        cx, cy = cupy.ones(n, "f4"), cupy.ones(n, "f4")
        raw = make("cupy.RawKernel")()
        count, factor = cupy.int32(n), cupy.float32(2.0)
        functions["cupy.RawKernel"] = lambda: raw((4,), (256,), (count, factor, cx, cy))
        functions["opdock kernel, CuPy arrays"] = lambda: saxpy(4, 256, n, 2.0, cx, cy)
    except ImportError as error:
        print(f"  skipped: cupy ({error})")
    for function in functions.values():
        function()
    return interleaved(torch, functions, repeats)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--child", metavar="PEER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    try:
        import torch
    except ImportError as error:
        print(f"  skipped: {error}")
        return
    if not torch.cuda.is_available():
        print("  skipped: no CUDA GPU, or a torch without CUDA")
        return
    results = []
    print(f"  {'':<44} {'minimum':>10} {'median':>10}")
    for peer in PEERS:
        times, problem = processes(peer, arguments.processes)
        if problem:
            print(f"  skipped: {peer} ({problem})")
            continue
        for turn, all_times in times.items():
            low, middle = min(all_times), statistics.median(all_times)
            name = f"{peer}, {turn}"
            print(f"  {name:<44} {low:>7.2f} ms {middle:>7.2f} ms")
            results.append({"name": name, "min_ms": round(low, 3), "median_ms": round(middle, 3)})
    for name, all_times in launches(torch, arguments.repeats).items():
        low, middle = min(all_times), statistics.median(all_times)
        print(f"  {name + ', launch':<44} {low:>7.3f} µs {middle:>7.3f} µs")
        results.append(
            {"name": f"{name}, launch", "min_us": round(low, 3), "median_us": round(middle, 3)}
        )
    if arguments.record:
        record.append(arguments.record, "compile", results)


if __name__ == "__main__":
    main()
