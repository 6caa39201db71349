# SPDX-License-Identifier: Apache-2.0
"""Runs the test_*.py of all plugins with kernels or formulas on one software GPU, as a Meson test.

    grid.py NAME ARCH SEED [MOST [PLUGIN:MOST…]]

NAME is the Meson test's name. MOST is how many tests of each plugin are run at most, with another
number for the PLUGINs named; without it all are. The test fails also if the run left a finding,
such as leaked device memory, or if a kernel of a plugin was not executed (with MOST: if a plugin
that is not named executed none). It is skipped (77) where the plugins were packed without the GPU's
compiler, hipRTC or NVRTC."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import opdock
from opdock._author import soft

# Kernels for tensor cores, whose versions for AMD GPUs are empty, and one kernel for clusters. They
# are never launched on AMD GPUs.
FOR_NVIDIA_ONLY = {"attention::decode", "attention::prompt", "attention::prompt_by_columns"}
FOR_NVIDIA_ONLY |= {"attention::backward_query_tiles", "attention::backward_key_tiles"}
FOR_NVIDIA_ONLY |= {"attention::added_tiles"}
FOR_NVIDIA_ONLY |= {
    f"attention::{form}::{one}"
    for form in ("sequences", "dropped")
    for one in ("prompt", "query_tiles", "key_tiles")
}
FOR_NVIDIA_ONLY |= {"linear::int8_few", "layernorm::backward::loop_slices"}
FOR_NVIDIA_ONLY |= {"ragged::attend_tiles"}

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import tree_plugins  # noqa: E402 (the line above sets its path)


def launched(record):
    """Returns {a kernel's mangled name: how often the run launched it}."""
    counts = Counter()
    with record.open() as lines:
        for line in lines:
            if '"launch"' in line:  # most lines are copies and allocations
                event = json.loads(line)
                if event["event"] == "launch" and not event.get("result"):
                    counts[event["function"]] += 1
    return counts


def executed(counts, functions):
    """Returns {function: how often it was launched} for kernels' functions such as
    "softmax::any_rows". Mangled names contain the identifiers, each behind its length."""
    mangled = {f: "".join(f"{len(part)}{part}" for part in f.split("::")) for f in functions}
    return {
        function: sum(count for name, count in counts.items() if mangled[function] in name)
        for function in sorted(functions)
    }


def main():
    name, arch, seed, *most = sys.argv[1:]
    build = Path(os.environ["OPDOCK_BUILD_DIR"])
    tools = build / "libexec" / "opdock"
    backend, _ = soft.kind_of(arch)
    left_out = FOR_NVIDIA_ONLY if backend == "rocm" else set()
    code = build / "tests" / "softgpu" / "ops" / "code"
    code.mkdir(parents=True, exist_ok=True)
    formulas = tree_plugins.with_formulas(backend)  # their kernels are compiled by the calls
    plugins = tree_plugins.with_kernels(backend)
    binaries = [build / "plugins" / f"{plugin}.so" for plugin in plugins]
    member, compiler = {"rocm": ("hip_archs", "hipRTC"), "cuda": ("cuda_archs", "NVRTC")}[backend]
    for binary in binaries:
        if not opdock.inspect(str(binary))[member]:
            print(f"{binary} has no images for {arch}: it was packed without {compiler}")
            return 77
    if not soft.fill_code(tools / "opdock-soft-code", binaries, code):
        return 1
    with tempfile.TemporaryDirectory() as folder:
        findings, record = Path(folder) / "findings", Path(folder) / "record"
        settings = {"seed": int(seed), "findings": str(findings), "leaks": True}
        gpus = [{"arch": arch}]
        env = soft.environment(os.environ, tools / "softgpu", code, gpus, folder, **settings) | {
            "OPDOCK_SOFTGPU_RECORD": str(record),
            "OPDOCK_TEST_DEVICES": backend,
            "OPDOCK_PLUGIN_PATH": str(build / "plugins"),
            "OPDOCK_BUILD": "never",
            "OPDOCK_FALLBACK": "error",
            "OPDOCK_GEMM": "plain",  # the GEMM libraries need a real GPU
        }
        words = [sys.executable, ROOT / "tests" / "run_pytest.py", name]
        folders = sorted({*plugins, *formulas})
        words += ["--import-mode=importlib", *(ROOT / "plugins" / plugin for plugin in folders)]
        # Each single value of a parameter: the pairs of values run on the CPU, and here nightly.
        env["OPDOCK_TEST_WAYS"] = "1"
        if most:
            env["OPDOCK_TEST_SAMPLE"] = " ".join([most[0], seed, *most[1:]])
        status = subprocess.run(words, env=env).returncode
        found = findings.read_text() if findings.exists() else ""
        counts = launched(record) if record.exists() else Counter()
        launches = {
            plugin: executed(counts, tree_plugins.functions(toml) - left_out)
            for plugin, toml in plugins.items()
        }
        if formulas:
            launches[", ".join(formulas)] = executed(counts, {"opdock::formula::kernel"})
    print(f"launches: {launches}, seed {seed}")
    if found:
        print(f"the software GPU found:\n{found}")
        return 1
    whole = {other.split(":")[0] for other in most[1:]} if most else set(launches)
    idle = [
        plugin
        for plugin, counts in launches.items()
        if not (all if plugin in whole else any)(counts.values())
    ]
    if idle:
        print(f"not each kernel was executed of {', '.join(idle)}")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
