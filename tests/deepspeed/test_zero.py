# SPDX-License-Identifier: Apache-2.0
"""Tests that an unmodified DeepSpeed trains with ZeRO 1, 2 and 3 on Opdock's optimizers, loss for
loss as plain PyTorch does: two processes on the CPU, with gloo."""

from conftest import needs_deepspeed, run_python

pytestmark = needs_deepspeed

QUIET = {"DS_ACCELERATOR": "cpu", "DS_SKIP_CUDA_CHECK": "1"}

TRAIN = """
import os, sys, torch
import deepspeed
from opdock.compat import deepspeed as compat
compat.install()
stages = {
    "1": {"stage": 1},
    "2 with offload": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    "3": {"stage": 3, "stage3_param_persistence_threshold": 0},
}
# DeepSpeed allocates buffers of 500 million elements without it.
small = {"reduce_bucket_size": 4096, "allgather_bucket_size": 4096}

def model():
    torch.manual_seed(0)
    wide = [torch.nn.Linear(8, 33), torch.nn.GELU(), torch.nn.Linear(33, 5)]
    return torch.nn.Sequential(*wide)

def batches():
    made = torch.Generator().manual_seed(1)
    return [(torch.randn(6, 8, generator=made), torch.randn(6, 5, generator=made))] * 4

def loss(layers, x, y):
    return torch.nn.functional.mse_loss(layers(x), y)

def train(rank, zero):
    config = {
        "train_micro_batch_size_per_gpu": 3,
        "zero_optimization": zero | small,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.05, "weight_decay": 0.1}},
    }
    layers, found = model(), []
    given = {"model": layers, "model_parameters": layers.parameters(), "config": config}
    engine = deepspeed.initialize(**given)[0]
    for x, y in batches():
        one = loss(engine, x[rank::2], y[rank::2])
        engine.backward(one)
        engine.step()
        one = one.detach().clone()
        torch.distributed.all_reduce(one)
        found.append(one.item() / 2)
    return found

def work(rank):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    torch.set_num_threads(1)
    # DeepSpeed compiles its own exchange of the processes of one host, where it can.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    meeting = {"init_method": "file://" + sys.argv[1], "rank": rank, "world_size": 2}
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, **meeting)
    layers, wanted = model(), []
    plain = torch.optim.AdamW(layers.parameters(), lr=0.05, weight_decay=0.1)
    for x, y in batches():
        one = loss(layers, x, y)
        plain.zero_grad()
        one.backward()
        plain.step()
        wanted.append(one.item())
    assert wanted[-1] < wanted[0] / 2, wanted
    for name, zero in stages.items():
        found = train(rank, zero)
        for a, b in zip(found, wanted, strict=True):
            assert abs(a - b) < 2e-5 * abs(b), (name, found, wanted)
    used = {name for name in sys.modules if name.startswith("opdock.compat.deepspeed.")}
    assert {"opdock.compat.deepspeed.cpu_adam", "opdock.compat.deepspeed.fused_adam"} <= used

child = os.fork()
if child == 0:
    status = 1
    try:
        work(1)
        status = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    os._exit(status)
work(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_zero_trains_loss_for_loss(tmp_path):
    run_python(
        TRAIN,
        tmp_path / "meeting",
        prelude="import torch, deepspeed",
        start=tuple(QUIET.items()),
        **QUIET,
        OMP_NUM_THREADS="1",
    )
