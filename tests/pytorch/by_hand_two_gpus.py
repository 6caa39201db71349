# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on two GPUs, plain and patched, under DDP and FSDP2, and compares the losses.

    ./dev python tests/pytorch/by_hand_two_gpus.py [--steps 300] [--processes 2] [--device cuda]

Prints a line of JSON for each of the two. The patched run begins with the weights of the plain one
and sees the same text; it has to stay as near to that one as a plain run with another seed does.
The exit status is 1 if it does not. Needs torch 2.11 or newer, with NCCL for GPUs.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import distributed_training
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def compare(wrap, mesh, steps):
    """Returns what a line says."""
    found, seconds = {}, {}
    runs = {"plain": {}, "patched": {"patched": True}, "another seed": {"seed": 2}}
    for name, options in runs.items():
        begin = time.perf_counter()
        found[name] = distributed_training.train(wrap, mesh, steps, **options)
        seconds[name] = round(time.perf_counter() - begin, 2)
    largest = distributed_training.train_gpt.largest_difference
    difference = largest(found["plain"], found["patched"])
    spread = largest(found["plain"], found["another seed"])
    return {
        "wrap": wrap.__name__,
        "device": mesh.device_type,
        "torch": torch.__version__,
        "processes": dist.get_world_size(),
        "steps": steps,
        "loss": {name: [losses[0], losses[-1]] for name, losses in found.items()},
        "difference": difference,
        "spread": spread,
        "seconds": seconds,
        "ok": difference <= spread and found["plain"][-1] < found["plain"][0],
    }


def work(rank, processes, device, steps, store):
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=processes,
    )
    mesh = init_device_mesh(device, (processes,))
    lines = [
        compare(wrap, mesh, steps)
        for wrap in (distributed_training.ddp, distributed_training.fsdp2)
    ]
    dist.destroy_process_group()
    if rank == 0:
        for line in lines:
            print(json.dumps(line), flush=True)
        if not all(line["ok"] for line in lines):
            sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    given = parser.parse_args()
    if given.device == "cuda" and torch.cuda.device_count() < given.processes:
        return (
            f"found {torch.cuda.device_count()} CUDA GPUs, wanted {given.processes}; pass "
            "--device cpu to run on the CPU"
        )
    with tempfile.TemporaryDirectory() as folder:
        arguments = given.processes, given.device, given.steps, str(Path(folder) / "store")
        torch.multiprocessing.spawn(work, arguments, nprocs=given.processes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
