# SPDX-License-Identifier: Apache-2.0
"""Compares opdock.compat.deepspeed.inference with DeepSpeed's own module, on a GPU.

Both get the same arguments, at shapes of layers of 768 and 4096 elements. For each function the
bench records the median time of a call between two events with a cold L2; the largest error against
float64, relative to the largest element; and whether all elements are right. Opdock's results must
be within the bounds of the tests here (inference_bounds.py), and the largest part of a bound that
is used is recorded; DeepSpeed's must be within those of its own tests. Arguments that are written
in place are copied before the error is computed; the timed calls work in place in both. With --tf32
only products of float32 run, which Opdock may then round as DeepSpeed does; both are compared with
the tolerance that DeepSpeed has for float16.

DeepSpeed's module is compiled by its InferenceBuilder. Functions are called in a process of their
own: if it ends, or a call breaks the CUDA context, this is recorded as a result, and another
process goes on with the next function. These functions start nothing on the GPU and are not timed:
allocate_workspace, reset_cache, release_workspace, retake_workspace."""

import argparse
import faulthandler
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gpu_ops
import inference_bounds
import inference_page
import peers
import record
import torch
from inference_calls import CACHED, DTYPES, RISKY, Numbers, Shape
from inference_products import CALLS, LAYERS

from opdock.compat.deepspeed import inference

HEADS = {256: 4, 768: 12, 4096: 32}
SIZES = [(1, 1), (32, 1), (1, 128), (32, 128), (1, 2048)]  # batch, tokens
SHAPES = {
    "cuda": [Shape(*size, hidden, HEADS[hidden]) for hidden in (768, 4096) for size in SIZES],
    "cpu": [Shape(*size, 256, 4) for size in ((1, 1), (3, 16))],
}
#: (rtol, atol) of DeepSpeed's own tests
TOLERANCES = {"fp32": (5e-4, 5e-5), "fp16": (3e-2, 2e-3), "bf16": (4.8e-1, 3.2e-2)}
TOLERANCES["tf32"] = TOLERANCES["fp16"]
# In this order, so that risky functions come last.
PAIRS = [(label, suffix) for label in CALLS for suffix in DTYPES]
ROUNDED = [(label, "tf32") for label in CALLS if label in inference_page.PRODUCTS]
REPEATS = 40
STUCK = 60  # seconds after which a call counts as stuck
LIMIT = 240  # seconds for all calls, DeepSpeed's compilation included
SKIPPED = "the function was not tried at the shapes after this one"
BUILD = """
import sys
sys.path.insert(0, sys.argv[1])
import peers
print("module " + peers.deepspeed_inference().__file__)
"""


def build():
    """Builds DeepSpeed's module in a process of its own. Returns (its file, "") or (None, why there
    is none)."""
    environment = {name: v for name, v in os.environ.items() if name != "OPDOCK_DEEPSPEED"}
    command = [sys.executable, "-c", BUILD, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    said = [line for line in done.stdout.splitlines() if line.startswith("module ")]
    if done.returncode == 0 and said:
        return said[-1].removeprefix("module "), ""
    lines = (done.stdout + done.stderr).splitlines()
    errors = [line for line in lines if "error" in line.lower()]
    return None, (errors or lines or [f"status {done.returncode}"])[0].strip()[:300]


def load(path):
    """Returns DeepSpeed's compiled module."""
    spec = importlib.util.spec_from_file_location(Path(path).name.partition(".")[0], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wait(device):
    """Waits until all work is done; also raises the error of a failed launch."""
    if device == "cuda":
        torch.zeros(1, device=device)
        torch.cuda.synchronize()


def time_us(function, before, device):
    """Returns (median microseconds of a call, whether only the device was timed)."""
    if device == "cuda":
        ms, is_ahead = gpu_ops.timed_ms(function, REPEATS, before)
        return ms * 1e3, is_ahead
    times = []
    for _ in range(5):
        before()
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6, True


def compare(found, wanted, suffix, bounds=None):
    """Compares all results that `wanted` has; returns {"error"?, "of_bound"?, "right", "found"?}.
    bounds: from inference_bounds.py; without them a result is right within the tolerance of
    DeepSpeed's tests. NaN is recorded as an error of 1e9, as JSON has no NaN."""
    found = list(found) if isinstance(found, (list, tuple)) else [found]
    rtol, atol = TOLERANCES[suffix]
    dtype = DTYPES["fp32" if suffix == "tf32" else suffix]
    errors, problems, used = [], [], []
    for number, (one, exact) in enumerate(zip(found, wanted, strict=True)):
        if exact is None:
            continue
        if one.shape != exact.shape:
            problems.append(f"shape {tuple(one.shape)}, wanted {tuple(exact.shape)}")
        elif one.dtype != dtype:
            problems.append(f"{one.dtype}, wanted {dtype}")
        else:
            difference = (one.double() - exact).abs()
            errors.append((difference.max() / exact.abs().max()).nan_to_num(1e9).item())
            if bounds is None:
                wrong = ~(difference <= atol + rtol * exact.abs())  # negated, so that NaN is wrong
                share = wrong.double().mean().item()
                problems += [f"{share:.1%} of the elements are wrong"] if share else []
            else:
                bound = bounds[number](exact, suffix, one.is_cuda)
                used.append(min(1e9, inference_bounds.worst(one, exact, bound)))
    result = {"error": float(f"{max(errors):.2g}")} if errors else {}
    if used:
        result["of_bound"] = float(f"{max(used):.2g}")
        problems += [f"{max(used):.3g} times the bound of the tests"] if max(used) > 1 else []
    if problems:
        return {**result, "right": False, "found": "; ".join(dict.fromkeys(problems))}
    return {**result, "right": True}


def measure(module, call, shape, suffix, device, wanted):
    """Returns the result of compare() for a call of this module, and its time."""
    if not hasattr(module, call.function):
        return {"right": False, "found": f"there is no {call.function}"}
    function = getattr(module, call.function)
    allocate = getattr(module, f"allocate_workspace_{'fp32' if suffix == 'tf32' else suffix}")
    tokens = max(shape.tokens, CACHED) + 64
    # The rank is 1, because DeepSpeed prints a table on rank 0.
    workspace = (shape.hidden, shape.heads, shape.tokens, shape.batch, LAYERS)
    allocate(*workspace, 1, False, 1, tokens, 1)
    module.reset_cache()
    if call.once:
        call.once(module)
    before = (lambda: call.before(module)) if call.before else (lambda: None)
    before()
    bounds = call.bounds if module is inference else None
    result = compare(function(*call.fresh()), wanted, suffix, bounds)
    wait(device)
    arguments = call.fresh()
    us, is_ahead = time_us(lambda: function(*arguments), before, device)
    wait(device)
    return {"us": round(us, 2), **result, **({} if is_ahead else {"host": True})}


def case(label, suffix, shape, device, modules, write):
    """Measures one function at one shape with all modules. Returns False if the process must
    end."""
    call = CALLS[label](Numbers("fp32" if suffix == "tf32" else suffix, device), shape)
    if call is None:
        return True
    wanted = call.wanted()
    name = f"{label} {shape} {suffix}"
    for whose, module in modules.items():
        faulthandler.dump_traceback_later(STUCK, exit=True)
        write({"begun": {"name": name, "peer": whose}})
        try:
            result = measure(module, call, shape, suffix, device, wanted)
        except Exception as error:
            result = {"right": False, "found": peers.first_line(error)}
        finally:
            faulthandler.cancel_dump_traceback_later()
        try:
            wait(device)
            works = True
        except Exception:  # the context is broken: nothing more runs in this process
            works = False
            result["found"] = f"{result.get('found', 'breaks the CUDA context')}; {SKIPPED}"
        write({"name": name, "peer": whose, **result})
        if not works:
            return False
    return True


def child(path, first, until, device, out, rounded):
    """Runs all cases from pair number `first` on. Writes JSON lines: the case that is begun, and
    results. rounded: selects ROUNDED instead of PAIRS."""
    pairs = ROUNDED if rounded else PAIRS
    torch.backends.cuda.matmul.allow_tf32 = rounded
    modules = {"opdock": inference}
    if path:
        modules["DeepSpeed"] = load(path)
    with open(out, "a", buffering=1) as file:

        def write(what):
            file.write(json.dumps(what) + "\n")

        for number in range(first, len(pairs)):
            label, suffix = pairs[number]
            write({"pair": number})
            turns = [modules]
            # Opdock runs at all shapes first, since DeepSpeed may overwrite its memory.
            if label in RISKY:
                turns = [{whose: module} for whose, module in modules.items()]
            for turn in turns:
                for shape in SHAPES[device]:
                    if time.time() > until:
                        sys.exit(f"out of time before {label} {shape} {suffix}")
                    if not case(label, suffix, shape, device, turn, write):
                        sys.exit(f"{label} {shape} {suffix}: the CUDA context is broken")
                    gc.collect()
            if label in RISKY and path:
                sys.exit(f"{label} {suffix} may have written anywhere: a new process")
            if device == "cuda":
                torch.cuda.empty_cache()  # DeepSpeed allocates memory outside of torch


def run_child(path, first, until, device, rounded):
    """Runs one child; returns (results, the next pair, the error or "")."""
    with tempfile.NamedTemporaryFile("r") as file:
        options = [path or "", str(first), str(until), device, file.name, "tf32" * rounded]
        done = subprocess.run(
            [sys.executable, __file__, "--child", *options],
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
        lines = [json.loads(line) for line in file]
    results = [line for line in lines if "name" in line]
    if done.returncode == 0:
        return results, None, ""
    said = [line for line in done.stderr.splitlines() if line.strip()] or ["nothing was said"]
    pairs, begun = ([line[key] for line in lines if key in line] for key in ("pair", "begun"))
    if not begun or time.time() > until:
        return results, None, "\n".join([*said[-20:], f"status {done.returncode}"])
    last = begun[-1]
    if (last["name"], last["peer"]) not in {(row["name"], row["peer"]) for row in results}:
        why = next((line for line in said if line.startswith(("Timeout", "Fatal"))), said[-1])
        text = f"the process ended, status {done.returncode}: {why[:160]}; {SKIPPED}"
        results.append({**last, "right": False, "found": text})
    return results, pairs[-1] + 1, ""


def show(row):
    us = f"{row['us']:10.2f} us" if "us" in row else " " * 13
    error = f"error {row['error']:.1e}" if "error" in row else ""
    verdict = "" if row["right"] else f"WRONG: {row['found']}"
    print(f"  {row['name']:<56} {row['peer']:<10} {us} {error} {verdict}", flush=True)


def main():
    if sys.argv[1:2] == ["--child"]:
        path, first, until, device, out, rounded = sys.argv[2:]
        child(path, int(first), float(until), device, out, bool(rounded))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--device", choices=SHAPES, default="cuda", help="cpu: small, ours alone")
    parser.add_argument("--tf32", action="store_true", help="products of float32, so rounded")
    arguments = parser.parse_args()
    path, until = None, time.time() + LIMIT
    if arguments.device == "cuda":
        if not torch.cuda.device_count():
            print("  skipped: found no CUDA GPU")
            return
        path, problem = build()
        print(f"  DeepSpeed's module: {path or 'skipped: ' + problem}", flush=True)
    results, first, problem = [], 0, ""
    while first is not None and first < len(ROUNDED if arguments.tf32 else PAIRS):
        found, first, problem = run_child(path, first, until, arguments.device, arguments.tf32)
        for row in found:
            show(row)
        results += found
        if arguments.record and found:  # an interrupted run keeps its results
            record.append(arguments.record, "inference", found)
    wrong = [row["name"] for row in results if row["peer"] == "opdock" and not row["right"]]
    if problem or wrong:
        sys.exit(
            "\n".join(filter(None, [problem, *(f"opdock is wrong: {name}" for name in wrong)]))
        )


if __name__ == "__main__":
    main()
