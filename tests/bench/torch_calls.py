# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a call through torch.ops: Opdock's operators next to torch's own.

Nanoseconds a call, loop included; for every row the minimum and the median of interleaved repeats.
The peers are torch.softmax; operators of the least code on libtorch's stable C interface, one that
does nothing and one that returns a fresh tensor, which show what torch's own part of a call costs;
and a hand-written TORCH_LIBRARY, whose second operator has softmax's parameters and only allocates.
It takes half a minute to compile and is kept in the build folder. A peer that cannot be built is
skipped with its reason. --device cuda measures the same on a GPU; the times are then those of the
calling thread."""

import argparse
import os
import shutil
import statistics
import subprocess
import timeit
from pathlib import Path

import record
import torch

import opdock
import opdock.torch
from opdock import _opdock
from opdock.torch import _recorder

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("OPDOCK_BUILD_DIR", ROOT / "build"))

STABLE = """
#include "torch/shim.h"
static void noop(StableIValue* stack, uint64_t, uint64_t) {
  aoti_torch_delete_tensor_object(reinterpret_cast<AtenTensorHandle>(stack[0]));
}
static void fresh(StableIValue* stack, uint64_t, uint64_t) {
  const auto x = reinterpret_cast<AtenTensorHandle>(stack[0]);
  int64_t ndim, *sizes, *strides;
  int32_t dtype, type, index;
  AtenTensorHandle y;
  aoti_torch_get_dim(x, &ndim);
  aoti_torch_get_sizes(x, &sizes);
  aoti_torch_get_strides(x, &strides);
  aoti_torch_get_dtype(x, &dtype);
  aoti_torch_get_device_type(x, &type);
  aoti_torch_get_device_index(x, &index);
  aoti_torch_empty_strided(ndim, sizes, strides, dtype, type, index, &y);
  aoti_torch_delete_tensor_object(x);
  stack[0] = reinterpret_cast<StableIValue>(y);
}
[[gnu::constructor]] static void add() {
  TorchLibraryHandle library;
  aoti_torch_library_init_fragment("opdock_bench", __FILE__, __LINE__, &library);
  aoti_torch_library_def(library, "stable_noop(Tensor x) -> ()");
  aoti_torch_library_def(library, "stable_fresh(Tensor x) -> Tensor");
  for (const char* key : {"CPU", "CUDA"}) {
    aoti_torch_library_init_impl("opdock_bench", key, __FILE__, __LINE__, &library);
    torch_library_impl(library, "stable_noop", noop, opdock::torch::kTorchVersion);
    torch_library_impl(library, "stable_fresh", fresh, opdock::torch::kTorchVersion);
  }
}
"""

HAND_WRITTEN = """
#include <ATen/ops/empty_like.h>
#include <torch/library.h>
static void noop(const at::Tensor&) {}
static at::Tensor fresh(const at::Tensor& x, double, const std::optional<at::Tensor>&, bool) {
  return at::empty_like(x);
}
TORCH_LIBRARY_FRAGMENT(opdock_bench, m) {
  m.def("hand_noop(Tensor x) -> ()");
  m.def("hand_fresh(Tensor x, float scale=1.0, Tensor? mask=None, bool causal=False) -> Tensor");
}
static void add(torch::Library& m) {
  m.impl("hand_noop", &noop);
  m.impl("hand_fresh", &fresh);
}
TORCH_LIBRARY_IMPL(opdock_bench, CPU, m) { add(m); }
TORCH_LIBRARY_IMPL(opdock_bench, CUDA, m) { add(m); }
"""


def skipped(peer, error):
    print(f"  skipped: {peer} ({(str(error).splitlines() or ['no reason'])[0]})")
    return False


def load_stable():
    """Loads the operators on the stable interface; returns whether they are there."""
    folder = BUILD / "bench-torch-stable"
    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / "stable.cc", folder / "stable.so"
    source.write_text("#include <initializer_list>\n" + STABLE)
    compiler = os.environ.get("CXX") or shutil.which("c++") or "c++"
    command = [compiler, "-std=c++20", "-O2", "-shared", "-fPIC", f"-I{ROOT / 'core'}", source]
    command += ["-o", library, f"-L{Path(torch.__file__).parent / 'lib'}", "-ltorch_cpu"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
        torch.ops.load_library(library)
    except (OSError, subprocess.CalledProcessError) as error:
        return skipped("the stable interface", getattr(error, "stderr", None) or error)
    return True


def load_hand_written():
    """Loads the hand-written TORCH_LIBRARY; returns whether it is there."""
    try:
        from torch.utils import cpp_extension

        folder = BUILD / "bench-torch-library"
        folder.mkdir(parents=True, exist_ok=True)
        cpp_extension.load_inline(
            "opdock_bench_library",
            HAND_WRITTEN,
            build_directory=str(folder),
            extra_cflags=["-O2"],
            is_python_module=False,
        )
    except Exception as error:
        return skipped("TORCH_LIBRARY", error)
    return True


def rows(device):
    """Returns {row: (statement, names)}."""
    x = torch.ones(4, 8, device=device)
    names = {"x": x, "torch": torch, "ops": opdock.ops, "parameter": torch.nn.Parameter(x)}
    names["target"] = torch.arange(4, device=device)
    for op in ("softmax", "noop", "cross_entropy", "dropout"):
        names[op] = getattr(torch.ops.opdock, op)
        names[f"raw_{op}"] = getattr(opdock.ops, op)
    table = {
        "torch.softmax 4x8": "torch.softmax(x, -1)",
        "torch.empty_like": "torch.empty_like(x)",
        "torch.ops.opdock.softmax 4x8": "softmax(x)",
        "opdock.ops.softmax 4x8": "raw_softmax(x)",
        "torch.ops.opdock.noop": "noop(x)",
        "opdock.ops.noop": "raw_noop(x)",
        "torch.ops.opdock.cross_entropy 4x8": "cross_entropy(x, target)",
        "torch.ops.opdock.dropout 4x8": "dropout(x)",
    }
    if load_stable():
        names["stable_noop"] = torch.ops.opdock_bench.stable_noop
        names["stable_fresh"] = torch.ops.opdock_bench.stable_fresh
        table["stable interface, no-op"] = "stable_noop(x)"
        table["stable interface, fresh tensor"] = "stable_fresh(x)"
    if load_hand_written():
        names["hand_noop"] = torch.ops.opdock_bench.hand_noop
        names["hand_fresh"] = torch.ops.opdock_bench.hand_fresh
        table["TORCH_LIBRARY, no-op"] = "hand_noop(x)"
        table["TORCH_LIBRARY, fresh tensor, softmax's schema"] = "hand_fresh(x)"
    return table, names


def recorded(device):
    """Returns rows of calls that autograd records, alone and with their backward pass."""
    w = torch.ones(4, 8, device=device, requires_grad=True)
    norm = [torch.ones(8, device=device, requires_grad=True) for _ in range(2)]
    gradient = torch.ones(4, 8, device=device)
    names = {"w": w, "norm": norm, "torch": torch, "gradient": gradient}
    names |= {"ops": torch.ops.opdock, "grad": torch.autograd.grad}
    calls = {
        "torch.softmax 4x8": ("torch.softmax(w, -1)", "w"),
        "torch.ops.opdock.softmax 4x8": ("ops.softmax(w)", "w"),
        "torch.layer_norm 4x8": ("torch.layer_norm(w, (8,), *norm)", "(w, *norm)"),
        "torch.ops.opdock.layer_norm 4x8": ("ops.layer_norm(w, *norm)", "(w, *norm)"),
    }
    table = {f"{name}, recorded": call for name, (call, _) in calls.items()}
    for name, (call, inputs) in calls.items():
        table[f"{name}, backward too"] = f"grad({call}, {inputs}, gradient)"
    return table, names


def by_python(device):
    """Returns the rows of recorded() for Opdock's operators, where Python records them."""
    table, names = recorded(device)
    return {f"{row}, by Python": call for row, call in table.items() if ".ops." in row}, names


def measure(table, names, repeats, number):
    """Adds {row: [ns a call, …]}. The rows alternate, so that a busy machine affects all of them
    alike."""
    timers = {row: timeit.Timer(statement, globals=names) for row, statement in table.items()}
    times = {row: [] for row in table}
    for _ in range(repeats):
        for row, timer in timers.items():
            times[row].append(timer.timeit(number) / number * 1e9)
    return times


BARS = [
    ("torch.ops.opdock.softmax 4x8", "torch.softmax 4x8", {"cpu": 0.6, "cuda": 0.75}),
    ("opdock.ops.softmax 4x8", "torch.softmax 4x8", {"cpu": 0.6, "cuda": 0.75}),
    ("torch.ops.opdock.noop", "stable interface, no-op", {"cpu": 1.05, "cuda": 1.05}),
    ("torch.ops.opdock.noop", "TORCH_LIBRARY, no-op", {"cpu": 1.15, "cuda": 1.15}),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--number", type=int, default=10_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    times = measure(*rows(arguments.device), arguments.repeats, arguments.number)
    times |= measure(*recorded(arguments.device), arguments.repeats, arguments.number // 5)
    if _recorder.problem() is None:
        _opdock.torch_use_recorder(False)
        times |= measure(*by_python(arguments.device), arguments.repeats, arguments.number // 10)
    else:
        skipped("the recorder", _recorder.problem())
    print(f"  {'ns a call, ' + arguments.device:<48} {'minimum':>12} {'median':>12}")
    results = []
    for row, all_times in times.items():
        low, middle = min(all_times), statistics.median(all_times)
        print(f"  {row:<48} {low:>12,.1f} {middle:>12,.1f}")
        name = row if arguments.device == "cpu" else f"{row}, {arguments.device}"
        results.append({"name": name, "min_ns": round(low, 1), "median_ns": round(middle, 1)})
    for row, peer, bars in BARS:
        if peer in times:
            found = statistics.median(times[row]) / statistics.median(times[peer])
            print(f"  {row} / {peer}: {found:.2f} (bar {bars[arguments.device]})")
    if arguments.record:
        record.append(arguments.record, "torch_calls", results)


if __name__ == "__main__":
    main()
