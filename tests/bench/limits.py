# SPDX-License-Identifier: Apache-2.0
"""Shows what limits GPU ops that stay below a copy's speed, as Nsight Compute measures it.

Each case is launched once with cold caches. The table shows how busy memory, the L2 and the
schedulers are, how many warps are resident, and what a warp waits for between two of its
instructions, in cycles: a warp that waits 20 cycles for loads has already requested as much as its
registers can hold."""

import argparse
import re
import sys

import ncu
import record

#: The plugin, op, shape and dtype of each case. Each launches one kernel that ncu.py reads.
CASES = [
    ("norm", "layer_norm", "2048x32768", "float32"),
    ("norm", "layer_norm", "8192x8192", "float32"),
    ("norm", "layer_norm", "2048x32768", "bfloat16"),
    ("norm", "layer_norm", "65536x1023", "bfloat16"),
    ("norm", "layer_norm", "4096x14431", "bfloat16"),
    ("norm", "rms_norm", "2048x32768", "float32"),
    ("norm", "rms_norm", "8192x8192", "bfloat16"),
    ("norm", "add_layer_norm", "2048x32768", "float32"),
    ("softmax", "softmax", "8192x8192", "float16"),
    ("cross_entropy", "cross_entropy", "8192x8192", "bfloat16"),
    ("cross_entropy", "cross_entropy", "2048x32768", "bfloat16"),
    ("cross_entropy", "cross_entropy_with_gradient", "8192x50257", "bfloat16"),
    ("cross_entropy", "cross_entropy_with_gradient", "8192x128256", "float32"),
    ("norm", "layer_norm_backward", "2048x32768", "float32"),
]
PERCENT = "pct_of_peak_sustained_elapsed"
METRICS = {
    "memory_pct": f"dram__throughput.avg.{PERCENT}",
    "l2_pct": f"lts__throughput.avg.{PERCENT}",
    "issue_pct": f"sm__inst_issued.avg.{PERCENT}",
    "warps_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
    "threads": "launch__block_size",
}
#: {what a warp waits for: Nsight Compute's names of it}
STALLS = {
    "loads": "long_scoreboard",
    "barrier": "barrier",
    "shared memory": "short_scoreboard",
    "memory queue": "lg_throttle",
    "arithmetic": "math_pipe_throttle",
    "fixed latency": "wait",
    "its turn": "not_selected",
    "fence": "membar",
    "instructions": "no_instruction",
    "shared memory's queue": "mio_throttle",
    "sleep": "sleeping",
}


def stall(name):
    return f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio"


def child():
    """Launches the kernel of each case once."""
    import gpu_ops
    import torch

    modules = {module.__name__: module for module in gpu_ops.benches()}
    for plugin, op, shape, dtype in CASES:
        size = [int(n) for n in shape.split("x")]
        x = torch.randn(size, device="cuda", dtype=getattr(torch, dtype))
        module = modules[f"bench_{plugin}"]
        for name, whose, _, function in getattr(module, "of_logits", module.candidates)(x):
            if (name, whose) == (op, "opdock"):
                function()
                break
        torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child()
        return
    if not ncu.found() or not record.output("nvidia-smi", "-L"):
        print("  skipped: found no ncu or no NVIDIA GPU")
        return
    metrics = [*METRICS.values(), *map(stall, STALLS.values())]
    rows, problem = ncu.launches(metrics, [sys.executable, __file__, "--child"])
    if len(rows or []) != len(CASES):
        sys.exit(f"found {len(rows or [])} launches, wanted {len(CASES)}\n{problem}")
    results = []
    for case, row in zip(CASES, rows, strict=True):
        number = {metric: ncu.number(row[metric]) for metric in metrics}
        waits = {what: number[stall(name)] for what, name in STALLS.items()}
        longest = sorted(waits, key=waits.get, reverse=True)[:2]
        kernel = re.search(rf"({ncu.KERNELS})", row["Kernel Name"])[1]
        result = {"name": " ".join(case[1:]), "kernel": kernel}
        result |= {name: round(number[metric], 1) for name, metric in METRICS.items()}
        result["waits"] = ", ".join(f"{what} {waits[what]:.1f}" for what in longest)
        print("  " + "  ".join(f"{key} {value}" for key, value in result.items()))
        results.append(result)
    if arguments.record:
        record.append(arguments.record, "limits", results)


if __name__ == "__main__":
    main()
