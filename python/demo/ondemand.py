# SPDX-License-Identifier: Apache-2.0
"""The demo's chapter on building on demand: a source plugin is built on first use and then
cached."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOML = """\
name = "triple"
version = "1.0"
license = "Apache-2.0"
sources = ["triple.cc"]
reference = "reference.py"

[[op]]
schema = "triple(Tensor x, *, float by=3.0) -> Tensor"
doc = "x * by, elementwise. x: float32, contiguous."
shape = ["like x"]
devices = ["cpu"]
dtypes = ["float32"]
flags = ["thread-safe", "deterministic"]
"""

SOURCE = """\
#include <opdock/plugin.hpp>

static void plan(opdock::Plan& plan, opdock::Tensor x, double) {
  opdock::check(x, "x").contiguous();
  plan.output(x.like());
}
static void run(opdock::Call&, opdock::Results out, opdock::Tensor x, double by) {
  const float* from = x.data<float>();
  float* to = out[0].data<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = static_cast<float>(from[i] * by);
}
OPDOCK_OP(triple, plan, nullptr, run)
"""

REFERENCE = "def triple(x, *, by=3.0):\n    return x * by\n"

USE = """\
import time
import numpy
import opdock
start = time.perf_counter()
y = opdock.ops.triple(numpy.arange(4, dtype="float32"))
used = [s["step"] for s in opdock.explain("triple")["chain"][0]["steps"] if s["outcome"] == "used"]
print(f"{y}   by step: {used[0]}, first call {1e3 * (time.perf_counter() - start):.1f} ms")
"""


def run(title, code, environment, **variables):
    """Runs `code` in a new process and shows it; ends the demo if it fails."""
    print(f"\n{title}", flush=True)
    environment = {**environment, **variables}
    if subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode:
        sys.exit(f"the demo's process failed: {title}")


def show(build):
    """Prints the chapter. build: the build folder, in which the plugin and a separate cache are
    made."""
    top = Path(tempfile.mkdtemp(prefix="demo-ondemand-", dir=Path(build).resolve()))
    plugin = top / "plugins" / "triple"
    plugin.mkdir(parents=True)
    (top / "nothing").mkdir()
    for name, text in (
        ("plugin.toml", TOML),
        ("triple.cc", SOURCE),
        ("reference.py", REFERENCE),
    ):
        (plugin / name).write_text(text)
    environment = {
        **os.environ,
        "OPDOCK_PLUGIN_PATH": str(top / "plugins"),
        "OPDOCK_CACHE_DIR": str(top / "cache"),
    }
    # With these variables no program is found by its name.
    bare = {"PATH": str(top / "nothing"), "VIRTUAL_ENV": "", "CONDA_PREFIX": ""}
    try:
        print(f"A folder with {', '.join(sorted(p.name for p in plugin.iterdir()))} is dropped in.")
        run("A first process uses it: built, loaded, called.", USE, environment)
        run("A second process, where no compiler is found: it is there.", USE, environment, **bare)
        shutil.rmtree(top / "cache")
        run(
            "No compiler and nothing built before: the reference stands in, and says why.",
            USE,
            environment,
            **bare,
        )
        run(
            "With OPDOCK_FALLBACK=error the same reasons are an error:",
            "import numpy, opdock\n"
            "try:\n    opdock.ops.triple(numpy.ones(2, 'float32'))\n"
            "except opdock.IncompatibleError as error:\n    print(error)\n",
            environment,
            OPDOCK_FALLBACK="error",
            **bare,
        )
    finally:
        shutil.rmtree(top, ignore_errors=True)
