# SPDX-License-Identifier: Apache-2.0
"""On the GPU: what a call with one launch costs the CPU, from Python, beside a bare cuLaunchKernel.

Microseconds a call, minimum and median of interleaved repeats; each repeat enqueues fewer launches
than the driver's queue holds and waits for the device outside the measured time. The bare launches
are a loop in C in the same process: from Python one would look dearer than it is.
"""

import argparse
import ctypes
import os
import statistics
from pathlib import Path

import record
from timing import interleaved

import opdock

BUILT = Path(os.environ.get("OPDOCK_BUILD_DIR", Path(__file__).resolve().parents[2] / "build"))
MODULE = BUILT / "tests" / "bench" / "bare_launch.so"


def bare_launch():
    """A function that launches an empty kernel so many times; None with the reason printed."""
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FILE")
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
    x = torch.ones(8, 64, device="cuda")
    noop, noop_launch, softmax = (
        opdock.load(name, device="cuda:0") for name in ("noop", "noop_launch", "softmax")
    )
    functions = {
        "opdock noop": lambda: noop(x),
        "opdock noop with one launch": lambda: noop_launch(x),
        "opdock softmax 8x64": lambda: softmax(x),
        "torch.softmax 8x64": lambda: torch.softmax(x, -1),
        "torch add in place": lambda: x.add_(0),
    }
    try:
        import tvm_ffi

        tvm_noop = tvm_ffi.get_global_func("testing.nop")
        functions["tvm-ffi noop"] = lambda: tvm_noop(x)
    except ImportError as error:
        print(f"  skipped: tvm-ffi ({error})")
    for function in functions.values():
        function()
    bare = bare_launch()
    loops = {"bare cuLaunchKernel, C": bare} if bare else {}
    times = interleaved(torch, functions, arguments.repeats, loops)
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
    if arguments.record:
        record.append(arguments.record, "python_gpu", results)


if __name__ == "__main__":
    main()
