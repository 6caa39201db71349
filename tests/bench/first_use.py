# SPDX-License-Identifier: Apache-2.0
"""Measures the first use of an op that has to be built first: opdock next to its peers.

The op is a * x + y on the CPU, from source, with cold caches: opdock's source plugin, torch's
cpp_extension.load_inline, tvm-ffi's cpp.load_inline. Each measurement is a process of its own with
empty caches; the time is that of loading and the first call, after the imports. Then opdock is
measured in three more situations: a new process with the plugin in the cache; 64 processes that ask
at once; and a builder that is killed while others wait for it. On a GPU: the first call of softmax,
whose kernels exist only as source; opening the run-time compiler counts, creating the CUDA context
does not."""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import record

HERE = Path(__file__).resolve()
BUILD = Path(os.environ.get("OPDOCK_BUILD_DIR", HERE.parents[2] / "build"))

PLUGIN_TOML = """
name = "first_axpy"
version = "0.1.0"
license = "Apache-2.0"
sources = ["first_axpy.cc"]

[[op]]
schema = "first_axpy(Tensor x, Tensor y, *, float a=1.0) -> Tensor"
doc = "a * x + y, elementwise. x, y: same shape, float32, contiguous."
shape = ["like x"]
devices = ["cpu"]
dtypes = ["float32"]
flags = ["thread-safe", "deterministic"]
"""

PLUGIN = """
#include <opdock/plugin.hpp>

using namespace opdock;

static void plan(Plan& plan, Tensor x, Tensor y, double) {
  check(x, "x").contiguous();
  check(y, "y").same_shape_as(x, "x").same_dtype_as(x, "x").contiguous();
  plan.output(x.like());
}

static void run(Call&, Results out, Tensor x, Tensor y, double a) {
  const float *px = x.data<float>(), *py = y.data<float>();
  float* pz = out[0].data<float>();
  for (int64_t i = 0; i < x.numel(); ++i) pz[i] = float(a) * px[i] + py[i];
}

OPDOCK_OP(first_axpy, plan, nullptr, run)
"""

TORCH = """
#include <torch/extension.h>
at::Tensor axpy(const at::Tensor& x, const at::Tensor& y, double a) {
  TORCH_CHECK(x.is_contiguous() && y.is_contiguous() && x.sizes() == y.sizes());
  at::Tensor z = at::empty_like(x);
  const float *px = x.data_ptr<float>(), *py = y.data_ptr<float>();
  float* pz = z.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) pz[i] = float(a) * px[i] + py[i];
  return z;
}
"""

TVM = """
void axpy(tvm::ffi::TensorView x, tvm::ffi::TensorView y, double a, tvm::ffi::TensorView z) {
  const float* px = static_cast<const float*>(x.data_ptr());
  const float* py = static_cast<const float*>(y.data_ptr());
  float* pz = static_cast<float*>(z.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) pz[i] = float(a) * px[i] + py[i];
}
"""


# ---- the measured processes


def use_opdock(start):
    """Waits for `start` after the imports; returns the seconds of load and first call, and the time
    at their end."""
    import numpy as np

    import opdock

    # Reads the machine's facts and the folders, as a process that is already at work has done.
    opdock.plugins()
    x = np.ones(8, np.float32)
    start()
    begin = time.monotonic()
    op = opdock.load("first_axpy", device="cpu")
    loaded = time.monotonic()
    assert op(x, x, a=2.0).tolist() == [3.0] * 8
    end = time.monotonic()
    chain = opdock.explain("first_axpy")["chain"]
    built = any("), built in" in step["text"] for record in chain for step in record["steps"])
    return {"seconds": end - begin, "load": loaded - begin, "end": end, "built": built}


def use_torch(start):
    import torch
    from torch.utils import cpp_extension

    x = torch.ones(8)
    start()
    begin = time.monotonic()
    module = cpp_extension.load_inline("first_axpy", TORCH, functions=["axpy"])
    assert module.axpy(x, x, 2.0).tolist() == [3.0] * 8
    return {"seconds": time.monotonic() - begin}


def use_tvm(start):
    import numpy as np
    import tvm_ffi
    import tvm_ffi.cpp

    x, z = np.ones(8, np.float32), np.empty(8, np.float32)
    start()
    begin = time.monotonic()
    module = tvm_ffi.cpp.load_inline(name="first_axpy", cpp_sources=TVM, functions=["axpy"])
    args = [tvm_ffi.from_dlpack(array) for array in (x, x)]
    module.axpy(*args, 2.0, tvm_ffi.from_dlpack(z))
    assert z.tolist() == [3.0] * 8
    return {"seconds": time.monotonic() - begin}


def use_kernel(start):
    import torch

    import opdock

    opdock.plugins()
    x = torch.ones(8, 1024, device="cuda")
    torch.softmax(x, -1)
    torch.cuda.synchronize()
    start()
    begin = time.monotonic()
    y = opdock.ops.softmax(x)
    torch.cuda.synchronize()
    seconds = time.monotonic() - begin
    assert (y - 1 / 1024).abs().max().item() < 1e-6
    return {"seconds": seconds}


USES = {"opdock": use_opdock, "torch": use_torch, "tvm-ffi": use_tvm, "kernel": use_kernel}


def wait_for_line():
    print("ready", flush=True)
    sys.stdin.readline()


def child(kind):
    try:
        result = USES[kind](wait_for_line)
    except Exception as error:  # reported to the parent, which prints that the row is missing
        result = {"error": (str(error).splitlines() or [repr(error)])[0]}
    print(json.dumps(result), flush=True)
    # The interpreter's exit would take CPU time from processes that are still at work.
    sys.stdin.readline()


# ---- the parent


class Child:
    """A measured process that is ready to start on go()."""

    def __init__(self, kind, environment):
        self.process = subprocess.Popen(
            [sys.executable, str(HERE), "--child", kind],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def wait_ready(self):
        """Returns False if the process ended before it was ready; result() then has the error."""
        self.line = self.process.stdout.readline()
        return self.line.strip() == "ready"

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def wait_done(self):
        """Reads the process's answer; the process stays alive until result()."""
        if self.line.strip() == "ready":
            self.line = self.process.stdout.readline()

    def result(self):
        self.wait_done()
        self.process.communicate()
        try:
            return json.loads(self.line)
        except ValueError:
            return {"error": f"ended with status {self.process.returncode}"}


class Workplace:
    """Folders of one measurement: caches, the source plugin, and a compiler wrapper that logs its
    starts."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.diary = self.folder / "compiles"
        plugin = self.folder / "plugins" / "first_axpy"
        plugin.mkdir(parents=True)
        (plugin / "plugin.toml").write_text(PLUGIN_TOML)
        (plugin / "first_axpy.cc").write_text(PLUGIN)

    def environment(self, diary=False):
        names = ("opdock", "torch", "tvm")
        for name in names:
            (self.folder / name).mkdir(mode=0o700, exist_ok=True)
        variables = {
            **os.environ,
            "OPDOCK_CACHE_DIR": str(self.folder / "opdock"),
            "OPDOCK_PLUGIN_PATH": str(self.folder / "plugins"),
            "TORCH_EXTENSIONS_DIR": str(self.folder / "torch"),
            "TVM_FFI_CACHE_DIR": str(self.folder / "tvm"),
        }
        variables.pop("OPDOCK_BUILD", None)
        if diary:
            compiler = self.folder / "c++"
            real = shutil.which("c++")
            compiler.write_text(
                '#!/bin/sh\ncase "$*" in *first_axpy.cc) what=compile ;; *) what=other ;; esac\n'
                f'echo "$(date +%s.%N) $what" >>"{self.diary}"\nexec {real} "$@"\n'
            )
            compiler.chmod(0o755)
            variables["CXX"] = str(compiler)
        return variables

    def starts(self, what=None):
        """Returns the wall-clock times at which the compiler was started: for the plugin's source
        ("compile"), by Meson and for linking ("other"), or all of them (None)."""
        text = self.diary.read_text() if self.diary.exists() else ""
        words = [line.split() for line in text.splitlines()]
        return [float(at) for at, kind in words if what in (None, kind)]


def fresh_room():
    """Makes a fresh folder below the build folder: a cache below /tmp is refused."""
    return tempfile.TemporaryDirectory(prefix="first-use-", dir=BUILD)


def once(kind, environment):
    one = Child(kind, environment)
    if one.wait_ready():
        one.go()
    return one.result()


def milliseconds(values):
    return {
        "min_ms": round(min(values) * 1e3, 2),
        "median_ms": round(statistics.median(values) * 1e3, 2),
    }


def first_uses(kind, repeats):
    """Returns the seconds of `repeats` cold first uses, or None with the reason printed."""
    seconds = []
    for _ in range(repeats):
        with fresh_room() as folder:
            result = once(kind, Workplace(folder).environment())
        if "error" in result:
            print(f"  skipped: {kind} ({result['error']})")
            return None
        seconds.append(result["seconds"])
    return seconds


def warm_loads(repeats):
    """Returns the seconds of opdock.load() in new processes. The plugin is in the cache, its files
    are old enough to be trusted, and one process has used it since."""
    with fresh_room() as folder:
        environment = Workplace(folder).environment()
        results = [once("opdock", environment)]
        time.sleep(2.1)  # files as young as that are read again each time: docs/reference/cache.md
        results += [once("opdock", environment) for _ in range(repeats + 1)]
    failed = [result["error"] for result in results if "error" in result]
    if failed:
        print(f"  skipped: warm load ({failed[0]})")
        return None
    return [result["load"] for result in results[2:]]


def kernels(repeats):
    """Returns the seconds of the first call of a plugin that has no image for this GPU: with cold
    caches, and in new processes after that. Returns None without a GPU."""
    try:
        import torch

        major = torch.cuda.get_device_capability()[0]
    except (ImportError, AssertionError, RuntimeError) as error:
        print(f"  skipped: device part missing ({str(error).splitlines()[0]})")
        return None
    with fresh_room() as folder:
        plugins = Path(folder) / "plugins"
        other = "7.5" if major == 8 else "8.0"  # does not run on a GPU of another major version
        command = [BUILD / "core" / "cli" / "opdock", "build", "--json", f"--archs={other}"]
        done = subprocess.run(
            command + [HERE.parents[2] / "plugins" / "softmax"],
            env=Workplace(Path(folder) / "build").environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(f"  skipped: device part missing ({done.stdout} {done.stderr})")
            return None
        plugins.mkdir()
        shutil.copy(json.loads(done.stdout)["path"], plugins)
        cold, warm = [], []
        for turn in range(repeats):
            environment = Workplace(Path(folder) / str(turn)).environment()
            environment["OPDOCK_PLUGIN_PATH"] = str(plugins)
            environment.pop("OPDOCK_ADD_PLUGIN_PATH", None)  # the tree's plugin has an image
            for seconds in (cold, warm):
                result = once("kernel", environment)
                if "error" in result:
                    print(f"  skipped: device part missing ({result['error']})")
                    return None
                seconds.append(result["seconds"])
        return cold, warm


def crowd(count):
    """Lets `count` processes ask at once. Returns the number of compiles, the builder's time, and
    how much later than the builder the last process has the op, by their own clocks. Neither
    Python's start nor its exit counts."""
    with fresh_room() as folder:
        place = Workplace(folder)
        environment = place.environment(diary=True)
        children = [Child("opdock", environment) for _ in range(count)]
        if not all([one.wait_ready() for one in children]):
            print("  skipped: crowd (a process did not start)")
            return None
        for one in children:
            one.go()
        for one in children:
            one.wait_done()
        results = [one.result() for one in children]
        failed = [result["error"] for result in results if "error" in result]
        if failed:
            print(f"  skipped: crowd ({len(failed)} of {count} failed: {failed[0]})")
            return None
        ends = [result["end"] for result in results]
        builders = [result for result in results if result["built"]]
        if len(builders) != 1:
            print(f"  skipped: crowd ({len(builders)} say that they built it)")
            return None
        return {
            "compiles": len(place.starts("compile")),
            "builder_ms": round(builders[0]["seconds"] * 1e3, 1),
            "last_behind_builder_ms": round((max(ends) - builders[0]["end"]) * 1e3, 1),
        }


def killed(waiting):
    """Kills the builder. Returns the time until another process starts a compiler, and until the
    last one has the op."""
    with fresh_room() as folder:
        place = Workplace(folder)
        environment = place.environment(diary=True)
        builder = Child("opdock", environment)
        others = [Child("opdock", environment) for _ in range(waiting)]
        if not all([one.wait_ready() for one in (builder, *others)]):
            print("  skipped: killed builder (a process did not start)")
            return None
        builder.go()
        deadline = time.monotonic() + 60
        while not place.starts("compile") and time.monotonic() < deadline:
            time.sleep(0.005)
        for one in others:
            one.go()
        time.sleep(0.3)  # the others reach the lock while the compiler is still at work
        builder.process.send_signal(signal.SIGKILL)
        moment, mark = time.time(), time.monotonic()
        results = [one.result() for one in others]
        builder.process.wait()
        failed = [result["error"] for result in results if "error" in result]
        later = [at for at in place.starts() if at >= moment]
        if failed or not later:
            print(f"  skipped: killed builder ({failed[0] if failed else 'it was done before'})")
            return None
        return {
            "compiles": len(place.starts("compile")),
            "others_go_on_ms": round((min(later) - moment) * 1e3, 1),
            "all_have_it_ms": round((max(result["end"] for result in results) - mark) * 1e3, 1),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER", help="append to the month's file in it")
    parser.add_argument("--repeats", type=int, default=3, help="of each cold first use")
    parser.add_argument("--processes", type=int, default=64, help="that ask at once")
    parser.add_argument("--child", choices=USES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    results = []

    def show(name, values):
        if values:
            results.append({"name": name, **values})
            text = ", ".join(f"{key} {value}" for key, value in values.items())
            print(f"  {name:<44} {text}", flush=True)

    repeats = {"opdock": arguments.repeats, "tvm-ffi": arguments.repeats, "torch": 1}
    names = {"opdock": "opdock source plugin", "tvm-ffi": "tvm-ffi load_inline"}
    names["torch"] = "torch cpp_extension.load_inline"
    for kind, count in repeats.items():
        if seconds := first_uses(kind, count):
            show(f"{names[kind]}, first use", milliseconds(seconds))
    if seconds := warm_loads(5):
        show("opdock.load(), in the cache, new process", milliseconds(seconds))
    if found := kernels(5):
        show("opdock, device part missing, first call", milliseconds(found[0]))
        show("opdock, device part in the cache, new process", milliseconds(found[1]))
    show(f"opdock, {arguments.processes} processes at once", crowd(arguments.processes))
    show("opdock, builder killed, 2 wait", killed(2))
    if arguments.record:
        record.append(arguments.record, "first_use", results)


if __name__ == "__main__":
    main()
