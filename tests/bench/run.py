#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the benches side by side with their peers: ./dev bench [--record NAME] [BENCH… [-- OPTIONS]]

Each bench is a program of this folder: a Python script that takes --record FOLDER, or a native one
under build/tests/bench that prints Google Benchmark's JSON. --record NAME appends every result to
the month's file in tests/bench/records/NAME, with machine, driver, versions, date and commit. What
stands behind -- is given to the benches that are scripts. --plot and --tables measure nothing:
--plot makes the pages and charts of docs from the records, --tables the tables of all cases in
build/benchmarks.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import record

HERE = Path(__file__).resolve().parent
BUILT = Path(os.environ.get("OPDOCK_BUILD_DIR", HERE.parents[1] / "build")) / "tests" / "bench"


def native(program, target):
    """Runs a Google Benchmark program; prints and records the medians in nanoseconds."""
    command = [str(program), "--benchmark_format=json", "--benchmark_repetitions=5"]
    command += ["--benchmark_report_aggregates_only=true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{program.name} ended with status {done.returncode}\n{done.stderr}")
    results = []
    factors = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
    for row in json.loads(done.stdout)["benchmarks"]:
        if row.get("aggregate_name") == "median":
            nanoseconds = row["real_time"] * factors[row["time_unit"]]
            results.append({"name": row["run_name"], "ns": round(nanoseconds, 2)})
            print(f"  {row['run_name']:<48} {nanoseconds:>14,.1f} ns")
    if target:
        record.append(target, program.stem, results)


def script(program, target, options):
    """Runs a Python bench, which prints its own table."""
    command = [sys.executable, str(program)] + (["--record", str(target)] if target else [])
    command += options
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"{program.name} failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="NAME", help="append to records/NAME/YEAR-MONTH.jsonl")
    parser.add_argument("benches", nargs="*", help="names without suffix; all by default")
    parser.add_argument("--plot", action="store_true", help="make docs' charts from the records")
    parser.add_argument(
        "--tables", action="store_true", help="write all cases of the records to build/benchmarks"
    )
    given = sys.argv[1:]
    own = given[: given.index("--")] if "--" in given else given
    options = given[len(own) + 1 :]
    arguments = parser.parse_args(own)
    if arguments.tables:
        subprocess.run([sys.executable, str(HERE / "table.py"), "--tables"], check=True)
        return
    if arguments.plot:
        for program in ("table", "plot"):
            subprocess.run([sys.executable, str(HERE / f"{program}.py")], check=True)
        return
    # A bench times what a program comes to in the end: cuDNN's plans from the first call on.
    os.environ.setdefault("OPDOCK_ATTENTION", "cudnn")
    target = HERE / "records" / arguments.record if arguments.record else None
    no_benches = ("run", "record", "table", "chart", "lines", "plot", "peers", "timing", "ncu")
    no_benches += ("test_record", "summary", "marks", "inference_page", "inference_bounds")
    no_benches += ("gpt2", "gpt2_loops", "gpt2_torch", "gpt2_peers", "gpt2_deepspeed")
    no_benches += ("inference_calls", "inference_products", "inference_table")
    no_benches += ("formulas_bars", "formulas_chains", "formulas_peers", "test_formulas")
    no_benches += ("torch_models_made",)
    programs = sorted(p for p in HERE.glob("*.py") if p.stem not in no_benches)
    programs += sorted(p for p in BUILT.glob("*_bench") if p.is_file())
    # These benches run only if they are named, as they take too long.
    by_name = ("bare", "torch_backend", "transformer_layer")
    chosen = [
        p
        for p in programs
        if p.stem in arguments.benches or (not arguments.benches and p.stem not in by_name)
    ]
    unknown = set(arguments.benches) - {p.stem for p in programs}
    if unknown:
        names = ", ".join(p.stem for p in programs)
        sys.exit(f"found no bench {', '.join(sorted(unknown))}; there are: {names}")
    for program in chosen:
        print(f"\n{program.stem}", flush=True)
        if program.suffix == ".py":
            script(program, target, options)
        else:
            native(program, target)


if __name__ == "__main__":
    main()
