# SPDX-License-Identifier: Apache-2.0
"""Measures what InferenceBuilder().load() costs a new process with Opdock.

The time runs from the import of the builder; torch is already imported. It is measured with the
plugins installed, and with the plugins as sources and an empty cache: there load() builds nothing,
and the first call of a function builds the plugin that it needs. DeepSpeed itself has no such
builder on a CPU."""

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
from opdock.compat.deepspeed import InferenceBuilder
module = InferenceBuilder().load()
loaded = time.perf_counter()
module.bias_add_fp32(x, bias)
assert (x == 2).all()
print(json.dumps([loaded - begin, time.perf_counter() - loaded]))
"""


def once(**variables):
    """Returns the seconds of load() and of the first call, measured in a process of its own."""
    environment = {n: v for n, v in os.environ.items() if n != "OPDOCK_DEEPSPEED"} | variables
    command = [sys.executable, "-c", USE]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def from_source():
    """Measures once() with the plugins as sources and a cache of its own. The cache is not below
    /tmp, where one is refused."""
    with tempfile.TemporaryDirectory(prefix="builder-load-", dir=BUILD) as folder:
        settings = {"OPDOCK_PLUGIN_PATH": str(TREE / "plugins"), "OPDOCK_ADD_PLUGIN_PATH": ""}
        settings |= {"OPDOCK_CACHE_DIR": folder, "OPDOCK_FALLBACK": "error"}
        times = once(**settings)
        if not list(Path(folder).rglob("*.so")):
            sys.exit(f"found no plugin that was built in {folder}, wanted activation's")
        return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    results = []

    def tell(name, runs):
        for what, seconds in zip(("load()", "first call"), zip(*runs, strict=True), strict=True):
            ms = round(statistics.median(seconds) * 1e3, 2)
            print(f"  {f'{name}, {what}':<60} {ms:10.1f} ms")
            results.append({"name": f"{name}, {what}", "median_ms": ms})

    tell("opdock, installed", [once() for _ in range(arguments.repeats)])
    tell("opdock, from source", [from_source() for _ in range(3)])
    if arguments.record:
        record.append(arguments.record, "builder_load", results)


if __name__ == "__main__":
    main()
