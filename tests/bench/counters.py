# SPDX-License-Identifier: Apache-2.0
"""Compares the software GPU's counters of a kernel with those of Nsight Compute on a GPU.

Each of three kernels is launched once on both. Sectors of global memory are 32 bytes, counted where
a warp's request reaches the L1 cache; requests are counted per warp. Without a GPU or ncu only the
software GPU's numbers are shown."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import ncu
import record

BUILD = Path(os.environ.get("OPDOCK_BUILD_DIR", Path(__file__).resolve().parents[2] / "build"))

#: The plugin, op, dtype and shape of x of each case.
CASES = {
    "softmax 64x4096": ("softmax", "softmax", "float16", (64, 4096)),
    "softmax 64x1001": ("softmax", "softmax", "float32", (64, 1001)),
    "add_layer_norm 128x1024": ("norm", "add_layer_norm", "float32", (128, 1024)),
}
#: {the software GPU's name of a counter: Nsight Compute's name}
METRICS = {
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "shared_load_requests": "smsp__inst_executed_op_shared_ld.sum",
    "shared_store_requests": "smsp__inst_executed_op_shared_st.sum",
    "shared_bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
}


def child(case):
    """Launches the case's kernel once, on whatever GPU this process has."""
    import torch

    import opdock
    from opdock.testing import on

    _, op, dtype, shape = CASES[case]
    generator = torch.Generator().manual_seed(1)

    def tensor(*size):
        return torch.randn(size, generator=generator).to(getattr(torch, dtype))

    arguments = [tensor(*shape)]
    if op == "add_layer_norm":
        arguments += [tensor(*shape), tensor(shape[-1]), tensor(shape[-1])]
    on("cuda", getattr(opdock.ops, op))(*arguments)


def on_soft(case, multiprocessors):
    """Returns the software GPU's {counter: value}."""
    from opdock._author import soft

    tools = BUILD / "libexec" / "opdock"
    plugin = BUILD / "plugins" / f"{CASES[case][0]}.so"
    with tempfile.TemporaryDirectory(prefix="bench-counters-", dir=BUILD) as folder:
        code, counters = Path(folder) / "code", Path(folder) / "counters"
        code.mkdir()
        if not soft.fill_code(tools / "opdock-soft-code", [plugin], code):
            sys.exit(1)
        gpus = [{"arch": "sm_90", "multiprocessors": multiprocessors}]
        env = soft.environment(
            os.environ, tools / "softgpu", code, gpus, folder, counters=str(counters)
        )
        subprocess.run([sys.executable, __file__, "--child", case], env=env, check=True)
        kernels = json.loads(counters.read_text())
    if len(kernels) != 1:
        sys.exit(f"found {len(kernels)} kernels launched for {case}, wanted one")
    return kernels[0]


def on_gpu(case):
    """Returns Nsight Compute's ({counter: value}, None), or (None, why there is none)."""
    rows, problem = ncu.launches(METRICS.values(), [sys.executable, __file__, "--child", case])
    if rows is None:
        return None, problem
    if len(rows) != 1:
        return None, f"found {len(rows)} launches, wanted one"
    return {name: ncu.number(rows[0][metric]) for name, metric in METRICS.items()}, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--child", metavar="CASE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    try:
        import torch
    except ImportError as error:
        print(f"  skipped: {error}")
        return
    has_gpu = torch.cuda.is_available() and ncu.found()
    if not has_gpu:
        print("  no GPU or no ncu: the software GPU's counts alone")
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count if has_gpu else 132
    results = []
    for case in CASES:
        soft = on_soft(case, multiprocessors)
        gpu, problem = on_gpu(case) if has_gpu else (None, None)
        print(f"  {case}: {soft['kernel']}" + (f" (ncu: {problem})" if problem else ""))
        for name in METRICS:
            if gpu is None:
                print(f"    {name:<24} {soft[name]:>10}")
                continue
            off = abs(soft[name] - gpu[name]) / gpu[name] * 100 if gpu[name] else 0.0
            same = "" if gpu[name] or not soft[name] else "  (the GPU counts none)"
            print(f"    {name:<24} {soft[name]:>10} {gpu[name]:>12.0f} {off:>6.2f} %{same}")
            results.append(
                {"name": f"{case}, {name}", "soft": soft[name], "ncu": gpu[name], "off": off}
            )
    if arguments.record and results:
        record.append(arguments.record, "counters", results)


if __name__ == "__main__":
    main()
