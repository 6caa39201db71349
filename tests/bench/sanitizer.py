# SPDX-License-Identifier: Apache-2.0
"""Runs compute-sanitizer on the plugins' kernels on this machine's GPU.

Each op that a bench_*.py times is called once per shape and dtype, on tensors that begin at a
16-byte boundary and on ones that do not, under each of the four tools; so are the checked_calls()
of these files. Every tensor is an allocation of its own, so that nothing lies behind its end."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import record
import torch

TOOLS = ["memcheck", "racecheck", "synccheck", "initcheck"]
SHAPES = [(3, 1), (5, 127), (300, 1023), (65, 4096), (3, 14431), (3, 32768), (2, 300_000)]
DTYPES = ["float32", "float16", "bfloat16"]


def call_all():
    """Calls every op; prints how many calls it made."""
    import gpu_ops

    calls = 0
    for shape in SHAPES:
        for dtype in DTYPES:
            for offset in (0, 1):
                size = shape[0] * shape[1]
                x = torch.randn(size + offset, device="cuda").to(getattr(torch, dtype))[offset:]
                for module in gpu_ops.benches():
                    of_any_length = getattr(module, "of_logits", module.candidates)
                    for _, whose, _, function in of_any_length(x.view(shape)):
                        if whose == "opdock":
                            function()
                            calls += 1
    for dtype in DTYPES:
        for module in gpu_ops.benches():
            for function in getattr(module, "checked_calls", lambda _: ())(getattr(torch, dtype)):
                function()
                calls += 1
    torch.cuda.synchronize()
    print(f"calls: {calls}")


def run(tool):
    """Returns {"errors", "calls"} of one tool, and what it printed."""
    command = ["compute-sanitizer", "--tool", tool]
    if tool == "memcheck":  # otherwise it counts each driver query that fails
        command += ["--report-api-errors", "no"]
    command += [sys.executable, __file__, "--child"]
    env = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    if tool == "initcheck":  # it does not see cuBLASLt's writes: even torch.matmul is an error
        env["OPDOCK_GEMM"] = "plain"
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    text = done.stdout + done.stderr
    errors = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text)
    calls = re.findall(r"^calls: (\d+)", text, re.MULTILINE)
    if done.returncode or not errors or not calls:
        return None, text
    return {"errors": int(errors[-1]), "calls": int(calls[-1])}, text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        call_all()
        return
    if not torch.cuda.is_available():
        print("  skipped: found no CUDA GPU")
        return
    if not shutil.which("compute-sanitizer"):
        print("  skipped: found no compute-sanitizer; it comes with the CUDA toolkit")
        return
    results = []
    with ThreadPoolExecutor() as pool:
        for tool, (found, text) in zip(TOOLS, pool.map(run, TOOLS), strict=True):
            if not found or found["errors"]:
                print(text[-8000:])
            if found:
                print(f"  {tool:<48} {found['errors']:>4} errors in {found['calls']} calls")
                results.append({"name": tool} | found)
    if arguments.record:
        record.append(arguments.record, "sanitizer", results)
    if len(results) < len(TOOLS) or any(result["errors"] for result in results):
        sys.exit("compute-sanitizer has found errors, or a tool has not ended well")


if __name__ == "__main__":
    main()
