# SPDX-License-Identifier: Apache-2.0
"""What limits ops on the GPU that stay below a copy's speed, as Nsight Compute reads it.

One launch of each case with cold caches: how busy memory, the L2 and the schedulers are, how many
warps are resident, and what a warp waits for between two of its instructions. In cycles: a warp
that waits 20 cycles for loads has asked for as much as it has registers for.
"""

import argparse
import csv
import re
import shutil
import subprocess
import sys

import record

#: Of a case: plugin, op, shape, dtype. Each launches one kernel of these names.
KERNELS = "narrow_rows|block_rows|long_rows"
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
#: What a warp waits for, and Nsight Compute's names of it.
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
    parser.add_argument("--record", metavar="FILE")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child()
        return
    if shutil.which("ncu") is None or not record.output("nvidia-smi", "-L"):
        print("  skipped: found no ncu or no NVIDIA GPU")
        return
    metrics = [*METRICS.values(), *map(stall, STALLS.values())]
    command = ["ncu", "--csv", "--page", "raw", "--clock-control", "none"]
    command += ["--kernel-name", f"regex:{KERNELS}", "--metrics", ",".join(metrics)]
    command += [sys.executable, __file__, "--child"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = done.stdout.splitlines()
    begin = next((i for i, line in enumerate(text) if line.startswith('"ID"')), None)
    # A header, a row of units, and a row for each launch.
    rows = list(csv.DictReader(text[begin:]))[1:] if begin is not None else []
    if done.returncode or len(rows) != len(CASES):
        sys.exit(
            f"found {len(rows)} launches, wanted {len(CASES)}\n{done.stderr}{done.stdout[-2000:]}"
        )
    results = []
    for case, row in zip(CASES, rows, strict=True):
        number = {key: float(re.sub(",", "", value or "0")) for key, value in row.items()
                  if key in metrics}  # fmt: skip
        waits = {what: number[stall(name)] for what, name in STALLS.items()}
        longest = sorted(waits, key=waits.get, reverse=True)[:2]
        kernel = re.search(rf"({KERNELS})", row["Kernel Name"])[1]
        result = {"name": " ".join(case[1:]), "kernel": kernel}
        result |= {name: round(number[metric], 1) for name, metric in METRICS.items()}
        result["waits"] = ", ".join(f"{what} {waits[what]:.1f}" for what in longest)
        print("  " + "  ".join(f"{key} {value}" for key, value in result.items()))
        results.append(result)
    if arguments.record:
        record.append(arguments.record, "limits", results)


if __name__ == "__main__":
    main()
