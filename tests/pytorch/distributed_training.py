# SPDX-License-Identifier: Apache-2.0
"""Trains the small GPT of examples/train_gpt in several processes, plain or patched."""

import contextlib
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import opdock.torch
from opdock.torch import _choice

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "train_gpt"))
import train_gpt

TEXT = Path(train_gpt.__file__).read_bytes()
#: What patch() swaps in this model.
KINDS = {"layer_norm", "add_layer_norm", "linear_gelu", "cross_entropy", "attention"}


def ddp(model, mesh):
    return DistributedDataParallel(model)


def fsdp2(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


@contextlib.contextmanager
def swaps_everything():
    """Has patch() choose Opdock's ops whatever is faster; gives the set of the ops called."""
    kinds, was = set(), _choice.is_faster

    def is_faster(swap, x, args, keywords):
        kinds.add(swap.kind)
        return True

    _choice.is_faster = is_faster
    try:
        yield kinds
    finally:
        _choice.is_faster = was


def batches(steps, seed, device, rows=4, context=32):
    """Returns each step's rows of bytes; each process has its own."""
    generator = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    data = torch.frombuffer(bytearray(TEXT), dtype=torch.uint8).long()
    begins = torch.randint(0, len(data) - context, (steps, rows), generator=generator)
    return data[begins[..., None] + torch.arange(context + 1)].to(device)


def train(wrap, mesh, steps, seed=1, patched=False):
    """Returns the loss of each step, the mean of all processes. wrap: ddp or fsdp2."""
    device = torch.device(mesh.device_type)  # the process's current one
    torch.manual_seed(seed)
    model = train_gpt.GPT().to(device)
    losses = []
    with swaps_everything() if patched else contextlib.nullcontext() as kinds:
        if patched:
            opdock.torch.patch(model)
        model = wrap(model, mesh)
        optimizers = opdock.torch.optim if patched else torch.optim
        optimizer = optimizers.AdamW(model.parameters(), lr=1e-3)
        for batch in batches(steps, seed, device):
            optimizer.zero_grad()
            loss = model(batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    assert not patched or kinds == KINDS, kinds
    found = torch.stack(losses)
    dist.all_reduce(found)
    return (found / dist.get_world_size()).tolist()
