# SPDX-License-Identifier: Apache-2.0
"""Compares adamw_ with PyTorch on every device: opdock bench plugins/adam

On CUDA it updates 268 million parameters, in 16 tensors and in 1,000 of mixed sizes, and compares
this with a device copy of as many bytes: 28 per parameter. lion_, adagrad_ and lamb_ are compared
with a copy alone. Run directly, it takes --threads N for
the CPU, which gives every competitor N cores."""

import argparse
import os

import torch

import opdock
from opdock.testing import bench, devices

MOVED = 28  # bytes per float32 parameter: four numbers read, three written; as many with masters


def mixed(count, total):
    """Returns sizes from a few hundred times smaller than the mean to a few times larger, as models
    have."""
    numbers = torch.rand(count, generator=torch.Generator().manual_seed(1)) * 9
    numbers = numbers.exp()
    return [max(1, int(n)) for n in numbers * (total / numbers.sum())]


def lists(sizes, like):
    """Returns params, grads, exp_avgs and exp_avg_sqs of these sizes, on the device of `like`."""
    make = {"device": like.device, "dtype": like.dtype}
    ones = [[torch.randn(size, **make) for size in sizes] for _ in range(2)]
    return [*ones, *([torch.zeros(size, **make) for size in sizes] for _ in range(2))]


def torch_step(params, grads, **kind):
    """Returns the step of torch's optimizer for copies of params."""
    own = [torch.nn.Parameter(p.clone()) for p in params]
    for p, g in zip(own, grads, strict=True):
        p.grad = g
    return torch.optim.AdamW(own, **kind).step


def torch_kernel(params, grads, exp_avgs, exp_avg_sqs):
    """Returns a call of torch's kernel without its optimizer."""
    steps = [torch.zeros((), device=params[0].device) for _ in params]
    state = (params, grads, exp_avgs, exp_avg_sqs, [], steps)
    usual = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}
    usual |= {"amsgrad": False, "maximize": False}
    return lambda: torch._fused_adamw_(*state, **usual)


def candidates(x):
    """Yields what tests/bench/gpu_ops.py times: (op, whose, how many tensors like x move,
    function)."""
    all_lists = [[one.view(x.shape) for one in some] for some in lists([x.numel()], x)]
    step = torch.zeros((), device=x.device)
    yield "adamw", "opdock", 7, lambda: opdock.ops.adamw_(*all_lists, step)
    yield "adamw", "torch", 7, torch_kernel(*all_lists)


def cpu_candidates(shape, dtype):
    """Yields what tests/bench/cpu_ops.py times: (op, whose, function)."""
    if len(shape) == 2:
        for name, whose, _, function in candidates(torch.randn(shape).to(dtype)):
            yield name, whose, function


def with_masters(sizes, like):
    """Returns steps of 16-bit parameters with float32 masters and averages. torch's kernel takes
    only gradients of its parameters' dtype: they are copied before it, and the parameters after
    it."""
    params, grads, *_ = lists(sizes, like)
    masters, wide, *averages = lists(sizes, like.float())
    step = torch.zeros((), device=like.device)
    kernel = torch_kernel(masters, wide, *averages)

    def in_steps():
        torch._foreach_copy_(wide, grads)
        kernel()
        torch._foreach_copy_(params, masters)

    def at_once():
        opdock.ops.adamw_(params, grads, *averages, step, masters=masters)

    return {"opdock": at_once, "torch": in_steps}


def extra_cases(dtype):
    """Yields what gpu_ops.py times in addition: (op, case, bytes moved, {whose: function},
    params)."""
    if dtype != torch.float32:
        sizes = [2**24] * 16
        functions = with_masters(sizes, torch.empty(0, dtype=dtype, device="cuda"))
        yield "adamw", "16x16777216 masters", sum(sizes) * MOVED, functions, None
        return
    for count, sizes in ((16, [2**24] * 16), (1000, mixed(1000, 2**28))):
        all_lists = lists(sizes, torch.empty(0, device="cuda"))
        step = torch.zeros((), device="cuda")
        functions = {
            "opdock": lambda lists=all_lists, step=step: opdock.ops.adamw_(*lists, step),
            "torch": torch_kernel(*all_lists),
        }
        case = f"{count}x{sum(sizes) // count} lists"
        yield "adamw", case, sum(sizes) * MOVED, functions, all_lists[0]


def compare(label, device, sizes):
    """Prints times and rates of a step of float32 tensors of these sizes."""
    like = torch.empty(0, device=device)
    params, grads, *averages = lists(sizes, like)
    step = torch.zeros((), device=device)
    functions = {"opdock": lambda: opdock.ops.adamw_(params, grads, *averages, step)}
    functions["torch fused"] = torch_step(params, grads, fused=True)
    functions["torch kernel"] = torch_kernel(params, grads, *averages)
    functions["torch foreach"] = torch_step(params, grads, foreach=True)
    total = sum(sizes)
    if device != "cpu":
        source = torch.zeros(total * MOVED // 2, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        functions["copy"] = lambda: target.copy_(source)
    times = bench(label, device, functions, seconds=1.0)
    beside = "torch fused" if device == "cpu" else "copy"
    for whose, us in times.items():
        print(
            f"  {whose:14} {total * MOVED / us / 1e3:7.1f} GB/s  {times[beside] / us:7.3f}"
            f" times the speed of {beside}"
        )


def others(sizes, like):
    """Yields (op, whose dtypes, bytes moved per parameter, function) for the other optimizers: all
    in like's dtype, and for 16 bits also with float32 masters and states."""
    params, grads, means, sums = lists(sizes, like)
    step = torch.zeros((), device=like.device)
    ops = {
        "lion": (opdock.ops.lion_, 1, (), 5),
        "adagrad": (opdock.ops.adagrad_, 1, (), 5),
        "lamb": (opdock.ops.lamb_, 2, (step,), 10),  # reads params and averages twice
    }
    whole = {"": ((params, grads, [means, sums]), {}, None)}
    if like.element_size() == 2:
        masters, _, *wide = lists(sizes, like.float())
        whole[" masters"] = ((params, grads, wide), {"masters": masters}, like.element_size())
    for name, (op, count, more, tensors) in ops.items():
        for kind, ((p, g, states), options, narrow) in whole.items():
            # Gradients and params are 16-bit beside masters: one is read, the other written.
            moved = (tensors - 1) * 4 + 2 * narrow if narrow else tensors * like.element_size()
            args = (p, g, *states[:count], *more)
            yield name, kind, moved, lambda op=op, a=args, o=options: op(*a, **o)


def compare_others(label, sizes, dtype):
    """Prints times of the other optimizers' steps, and their shares of a device copy's rate."""
    total = sum(sizes)
    for name, kind, moved, function in others(sizes, torch.empty(0, device="cuda", dtype=dtype)):
        source = torch.zeros(total * moved // 2, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        functions = {"opdock": function, "copy": lambda s=source, t=target: t.copy_(s)}
        whole = f"{name} {label} {str(dtype).removeprefix('torch.')}{kind}"
        times = bench(whole, "cuda", functions, seconds=0.5)
        share = times["copy"] / times["opdock"]
        print(f"  {whole}: {moved} bytes a parameter, {share:7.3f} times the speed of copy")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    threads = parser.parse_args().threads
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    torch.set_num_threads(threads)
    for device in devices():
        if device == "cuda":
            compare("adamw 268M in 16 tensors", device, [2**24] * 16)
            compare("adamw 268M in 1000 tensors", device, mixed(1000, 2**28))
            for dtype in (torch.float32, torch.bfloat16):
                compare_others("268M in 16 tensors", [2**24] * 16, dtype)
                compare_others("268M in 1000 tensors", mixed(1000, 2**28), dtype)
            continue
        compare("adamw 4 x 1K", device, [1024] * 4)
        compare("adamw 16 x 64K", device, [2**16] * 16)
        compare("adamw 1000 x 1K", device, [1000] * 1000)
        compare("adamw 16M in 1000 tensors", device, mixed(1000, 2**24))
        compare("adamw 4 x 4M", device, [2**22] * 4)


if __name__ == "__main__":
    main()
