# SPDX-License-Identifier: Apache-2.0
"""Measures the CPU time of a call with one launch, from Python, next to a bare cuLaunchKernel.

The bench runs on the GPU. Microseconds a call, minimum and median of interleaved repeats; each
repeat enqueues fewer launches than the driver's queue holds and waits for the device outside the
measured time. The bare launches are a loop in C in the same process: from Python a bare launch
would look slower than it is. All others are statements in the loop of timeit. With CuPy's arrays
the peer is CuPy's own launch of the same kernel."""

import argparse
import ctypes
import os
import statistics
import timeit
from pathlib import Path

import record
from timing import interleaved

import opdock

BUILT = Path(os.environ.get("OPDOCK_BUILD_DIR", Path(__file__).resolve().parents[2] / "build"))
MODULE = BUILT / "tests" / "bench" / "bare_launch.so"


def bare_launch():
    """Returns a function that launches an empty kernel a given number of times; None with the
    reason printed."""
    if not MODULE.is_file():
        print(f"  skipped: a bare cuLaunchKernel ({MODULE} is not built)")
        return None
    launch = ctypes.CDLL(str(MODULE)).bare_launch
    launch.restype = ctypes.c_char_p
    problem = launch(1)
    if problem:
        print(f"  skipped: a bare cuLaunchKernel ({problem.decode()})")
        return None
    return launch


SAXPY = """
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""


def cupy_rows(names):
    """Returns {row: statement} of calls with CuPy's arrays; adds the variables that they use to
    `names`."""
    try:
        import cupy
    except ImportError as error:
        print(f"  skipped: cupy ({error})")
        return {}
    names |= {"raw": cupy.RawKernel(SAXPY, "saxpy"), "n": cupy.int32(1024), "a": cupy.float32(2)}
    names |= {"cx": cupy.ones(1024, "f4"), "cy": cupy.ones(1024, "f4")}
    names |= {"c": cupy.ones((8, 64), "f4"), "cupy_empty": cupy.empty}
    return {
        "cupy.RawKernel": "raw((4,), (256,), (n, a, cx, cy))",
        "opdock kernel, CuPy arrays": "saxpy(4, 256, 1024, 2.0, cx, cy)",
        "opdock noop, CuPy array": "noop(c)",
        "opdock noop with one launch, CuPy array": "noop_launch(c)",
        "opdock softmax 8x64, CuPy array": "softmax(c)",
        "cupy.empty": "cupy_empty((8, 64), 'f4')",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--repeats", type=int, default=40)
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"  skipped: {error}")
        return
    if not torch.cuda.is_available():
        print("  skipped: no CUDA GPU, or a torch without CUDA")
        return
    names = {
        name: opdock.load(name, device="cuda:0") for name in ("noop", "noop_launch", "softmax")
    }
    names |= {"torch": torch, "x": torch.ones(8, 64, device="cuda")}
    names |= {"tx": torch.ones(1024, device="cuda"), "ty": torch.ones(1024, device="cuda")}
    names["saxpy"] = opdock.compile(SAXPY).kernel("saxpy")
    rows = {
        "opdock noop": "noop(x)",
        "opdock noop with one launch": "noop_launch(x)",
        "opdock kernel": "saxpy(4, 256, 1024, 2.0, tx, ty)",
        "opdock softmax 8x64": "softmax(x)",
        "torch.softmax 8x64": "torch.softmax(x, -1)",
        "torch add in place": "x.add_(0)",
    }
    try:
        import tvm_ffi

        names["tvm_noop"] = tvm_ffi.get_global_func("testing.nop")
        rows["tvm-ffi noop"] = "tvm_noop(x)"
    except ImportError as error:
        print(f"  skipped: tvm-ffi ({error})")
    rows |= cupy_rows(names)
    loops = {row: timeit.Timer(statement, globals=names).timeit for row, statement in rows.items()}
    for loop in loops.values():
        loop(3)
    bare = bare_launch()
    if bare:
        loops = {"bare cuLaunchKernel, C": bare} | loops
    times = interleaved(torch, {}, arguments.repeats, loops)
    results = []
    print(f"  {'µs a call':<40} {'minimum':>10} {'median':>10}")
    for name, all_times in times.items():
        low, middle = min(all_times), statistics.median(all_times)
        print(f"  {name:<40} {low:>10.3f} {middle:>10.3f}")
        results.append({"name": name, "min_us": round(low, 3), "median_us": round(middle, 3)})
    if bare:
        pairs = zip(
            times["opdock noop with one launch"], times["bare cuLaunchKernel, C"], strict=True
        )
        above = statistics.median(called - launched for called, launched in pairs)
        print(f"  opdock noop with one launch - bare launch: {above:.3f} µs (bar 0.6)")
    if "cupy.RawKernel" in times:
        ratio = statistics.median(times["opdock kernel, CuPy arrays"]) / statistics.median(
            times["cupy.RawKernel"]
        )
        print(f"  opdock kernel, CuPy arrays / cupy.RawKernel: {ratio:.2f} (bar 1)")
    if arguments.record:
        record.append(arguments.record, "python_gpu", results)


if __name__ == "__main__":
    main()
