# SPDX-License-Identifier: Apache-2.0
"""What DeepSpeed's InferenceBuilder().load() costs a new process, answered by Opdock.

The time is from the builder's import on, torch being imported before: with the plugins installed,
and as sources with an empty cache, where load() builds nothing and the first call of a function
the plugin that it needs. On a GPU where DeepSpeed is installed, its own builder's beside it, once
its module has been compiled.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import record

TREE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("OPDOCK_BUILD_DIR", TREE / "build"))

USE = """
import json, time, torch
x, bias = torch.ones(2, 3, 8), torch.ones(8)
begin = time.perf_counter()
from {package} import InferenceBuilder
module = InferenceBuilder().load(verbose=False)
loaded = time.perf_counter()
if {calls}:
    module.bias_add_fp32(x, bias)
    assert (x == 2).all()
print(json.dumps([loaded - begin, time.perf_counter() - loaded]))
"""


def once(package, calls=True, **variables):
    """Seconds of load(), and of the first call; the process's last line of errors if it fails."""
    environment = {n: v for n, v in os.environ.items() if n != "OPDOCK_DEEPSPEED"} | variables
    done = subprocess.run(
        [sys.executable, "-c", USE.format(package=package, calls=calls)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def from_source():
    """The same of the plugins' sources, with a cache of its own; not below /tmp, where one is
    refused."""
    with tempfile.TemporaryDirectory(prefix="builder-load-", dir=BUILD) as folder:
        settings = {"OPDOCK_PLUGIN_PATH": str(TREE / "plugins"), "OPDOCK_ADD_PLUGIN_PATH": ""}
        settings |= {"OPDOCK_CACHE_DIR": folder, "OPDOCK_FALLBACK": "error"}
        times = once("opdock.compat.deepspeed", **settings)
        if not list(Path(folder).rglob("*.so")):
            raise RuntimeError(f"found no plugin that was built in {folder}")
        return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FILE")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    results = []

    def tell(name, runs):
        for what, seconds in zip(("load()", "first call"), zip(*runs, strict=True), strict=False):
            ms = round(statistics.median(seconds) * 1e3, 2)
            print(f"  {f'{name}, {what}':<60} {ms:10.1f} ms")
            results.append({"name": f"{name}, {what}", "median_ms": ms})

    installed = [once("opdock.compat.deepspeed") for _ in range(arguments.repeats)]
    tell("opdock, installed", installed)
    tell("opdock, from source", [from_source() for _ in range(3)])
    try:
        once("deepspeed.ops.op_builder", calls=False)  # compiles
        theirs = [once("deepspeed.ops.op_builder", calls=False) for _ in range(arguments.repeats)]
        tell("DeepSpeed, compiled before", [run[:1] for run in theirs])
    except RuntimeError as error:
        print(f"  skipped: DeepSpeed's own ({error})")
    if arguments.record:
        record.append(arguments.record, "builder_load", results)


if __name__ == "__main__":
    main()
