# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a call from Python without any work: opdock next to its peers.

Nanoseconds a call, loop included; for every row the minimum and the median of interleaved repeats.
The peers are apache-tvm-ffi's packed no-op, and a pybind11 extension of torch
(torch.utils.cpp_extension), which is built once and kept in the build folder; each is skipped with
its reason where it is missing. The bench also measures looking up and loading one plugin."""

import argparse
import os
import statistics
import subprocess
import sys
import timeit
from pathlib import Path

import numpy as np
import record

import opdock

BUILD = Path(os.environ.get("OPDOCK_BUILD_DIR", Path(__file__).resolve().parents[2] / "build"))

EXTENSION = """
#include <torch/extension.h>
void noop(const at::Tensor&) {}
at::Tensor fresh(const at::Tensor& x) { return at::empty_like(x); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("noop", &noop); m.def("fresh", &fresh); }
"""


def torch_extension():
    """Returns a pybind11 extension of torch, or None with the reason printed."""
    try:
        from torch.utils import cpp_extension

        folder = BUILD / "bench-torch-extension"
        folder.mkdir(parents=True, exist_ok=True)
        return cpp_extension.load_inline(
            "opdock_bench_noop", EXTENSION, build_directory=str(folder), extra_cflags=["-O2"]
        )
    except Exception as error:
        print(f"  skipped: pybind11 extension of torch ({str(error).splitlines()[0]})")
        return None


def tvm_ffi():
    """Returns the package tvm_ffi, or None with the reason printed."""
    try:
        import tvm_ffi

        return tvm_ffi
    except ImportError as error:
        print(f"  skipped: tvm-ffi ({error})")
        return None


def import_torch():
    try:
        import torch

        return torch
    except ImportError as error:
        print(f"  skipped: torch ({error})")
        return None


def rows():
    """Returns {row: (statement, names)}."""
    torch, ffi = import_torch(), tvm_ffi()
    a = np.ones((4, 8), np.float32)
    names = {"a": a, "noop": opdock.ops.noop, "np": np, "softmax": opdock.ops.softmax}
    table = {
        "empty builtin (loop and call)": "callable(a)",
        "opdock noop, NumPy": "noop(a)",
        "opdock noop, NumPy, by name": "noop(x=a)",
        "opdock softmax 4x8 with a fresh result, NumPy": "softmax(a)",
        "np.empty_like": "np.empty_like(a)",
    }
    if ffi is not None:
        names["tvm_noop"] = ffi.get_global_func("testing.nop")
        table["tvm-ffi noop, NumPy"] = "tvm_noop(a)"
    if torch is not None:
        names |= {"t": torch.ones(4, 8), "torch": torch}
        names["p"] = torch.nn.Parameter(torch.ones(4, 8), requires_grad=False)
        table["opdock noop, torch"] = "noop(t)"
        table["opdock noop, torch, by name"] = "noop(x=t)"
        table["opdock noop, torch parameter"] = "noop(p)"
        table["opdock softmax 4x8 with a fresh result, torch"] = "softmax(t)"
        table["torch.softmax 4x8"] = "torch.softmax(t, -1)"
        table["torch.empty_like"] = "torch.empty_like(t)"
        if ffi is not None:
            table["tvm-ffi noop, torch"] = "tvm_noop(t)"
        extension = torch_extension()
        if extension is not None:
            names |= {"extension": extension.noop, "fresh": extension.fresh}
            table["pybind11 extension noop, torch"] = "extension(t)"
            table["pybind11 extension, fresh tensor"] = "fresh(t)"
        torch.set_num_threads(1)
    return table, names


def measure(table, names, repeats, number):
    """Returns {row: [ns a call, …]}. The rows alternate, so that a busy machine affects all of them
    alike."""
    timers = {row: timeit.Timer(statement, globals=names) for row, statement in table.items()}
    times = {row: [] for row in table}
    for _ in range(repeats):
        for row, timer in timers.items():
            times[row].append(timer.timeit(number) / number * 1e9)
    return times


LOAD = """
import json, time, opdock
opdock.plugins()  # the package is imported, the machine and the folders are known
start = time.perf_counter()
softmax = opdock.load("softmax", device="cpu")
print((time.perf_counter() - start) * 1e9)
"""

IMPORT = """
import time
start = time.perf_counter()
import opdock
print((time.perf_counter() - start) * 1e9)
"""


def in_fresh_processes(program, repeats):
    """Returns the numbers that a program prints, each time in a process of its own."""
    command = [sys.executable, "-c", program]
    return [
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(repeats)
    ]


def ratio(times, row, peer, bar):
    """Prints the ratio of the minima row / peer, next to its limit."""
    if row in times and peer in times:
        found = min(times[row]) / min(times[peer])
        print(f"  {row} / {peer}: {found:.2f} (bar {bar})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--number", type=int, default=20_000)
    arguments = parser.parse_args()
    table, names = rows()
    times = measure(table, names, arguments.repeats, arguments.number)
    times["opdock.load() of one plugin"] = in_fresh_processes(LOAD, 7)
    times["import opdock"] = in_fresh_processes(IMPORT, 7)
    print(f"  {'ns a call':<48} {'minimum':>12} {'median':>12}")
    results = []
    for row, all_times in times.items():
        low, middle = min(all_times), statistics.median(all_times)
        print(f"  {row:<48} {low:>12,.1f} {middle:>12,.1f}")
        results.append({"name": row, "min_ns": round(low, 1), "median_ns": round(middle, 1)})
    ratio(times, "opdock noop, torch", "tvm-ffi noop, torch", 0.4)
    ratio(times, "opdock noop, NumPy", "tvm-ffi noop, NumPy", 0.2)
    if arguments.record:
        record.append(arguments.record, "python_noop", results)


if __name__ == "__main__":
    main()
