#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs DeepSpeed 0.7.7's own Python, unmodified, on Opdock: its builders and inference layers.

    ./dev python tests/deepspeed/by_hand_0_7_7.py CHECKOUT [--device cuda] [--all-builders]

CHECKOUT is a folder with the folder deepspeed of DeepSpeed 0.7.7, such as FlexLLMGen's folder
benchmark/third_party/DeepSpeed; none of its files is changed. Names that newer releases of torch,
NumPy and pydantic have removed are restored first, in memory. The script prints each builder of
ALL_OPS and what its load() returns; each layer's largest error against float64, relative to the
largest element; and which functions of the inference module DeepSpeed's Python has called. The exit
status is 1 if an op that a plugin serves, or a layer, is wrong.
"""

import argparse
import collections.abc
import functools
import math
import sys
import tempfile
import types
import warnings
from pathlib import Path

import torch

SERVED = ("cpu_adagrad", "cpu_adam", "fused_adam", "fused_lamb", "async_io", "utils")
SERVED += ("quantizer", "stochastic_transformer", "transformer", "transformer_inference")
#: largest error of a layer, relative to the largest element: a few roundings
BOUNDS = {"fp32": 2e-6, "fp16": 3e-3}


def put_back(device):
    """Restores what 0.7.7 imports from torch, NumPy and pydantic and newer releases have
    removed."""
    import numpy
    import pydantic.v1

    six = types.ModuleType("torch._six")
    six.inf, six.string_classes, six.container_abcs = math.inf, (str, bytes), collections.abc
    sys.modules["torch._six"] = six
    sys.modules["pydantic"] = pydantic.v1
    numpy.BUFSIZE = 8192
    for kind in (bool, float, int, object):
        if kind.__name__ not in vars(numpy):
            setattr(numpy, kind.__name__, kind)
    # 0.7.7's layers and FusedAdam make tensors on a GPU through these functions.
    if device == "cpu":
        torch.cuda.current_device = lambda: "cpu"
        torch.cuda.IntTensor = torch.IntTensor


class Calls:
    """Wraps the inference module and keeps the names that were called."""

    def __init__(self, module):
        self.module, self.names = module, set()

    def __getattr__(self, name):
        return functools.partial(self._call, name)

    def _call(self, name, *arguments):
        self.names.add(name)
        return getattr(self.module, name)(*arguments)


def load_builders(all_of_them):
    """Returns two dicts by name: what each op of ALL_OPS came from, and the modules that Opdock
    provided.

    all_of_them: also loads those that DeepSpeed compiles itself, which can take minutes."""
    from deepspeed.ops.op_builder import ALL_OPS

    found, modules = {}, {}
    for name, builder in ALL_OPS.items():
        is_ours = name in SERVED
        if not (is_ours or all_of_them):
            found[name] = "DeepSpeed's own, not tried"
            continue
        try:
            module = builder.load()
        except (Exception, SystemExit) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            found[name] = f"{'Opdock' if is_ours else 'DeepSpeed'}: {first[:100]}"
            continue
        by_opdock = module.__name__.startswith("opdock.")
        found[name] = "Opdock" if by_opdock else "DeepSpeed's own, compiled"
        if by_opdock:
            modules[name] = module
    return found, modules


def served_ops(modules, device):
    """Runs the ops other than inference that a plugin serves, through DeepSpeed's Python; yields
    (name, error)."""
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam

    for kind, where in ((DeepSpeedCPUAdam, "cpu"), (FusedAdam, device)):
        x, y = (torch.nn.Parameter(torch.linspace(-1, 1, 1000, device=where)) for _ in range(2))
        theirs = torch.optim.AdamW([y], lr=1e-2, weight_decay=0.1)
        ours = kind([x], lr=1e-2, weight_decay=0.1)
        for _ in range(5):
            for p, optimizer in ((x, ours), (y, theirs)):
                p.grad = p.detach().sin() + 1
                optimizer.step()
        yield kind.__name__, ((x - y).abs().max() / y.abs().max()).item()
    with tempfile.TemporaryDirectory() as folder:
        handle = modules["async_io"].aio_handle(1024, 2, False, True, 2)
        x, y = torch.randn(1000), torch.zeros(1000)
        handle.sync_pwrite(x, folder + "/x")
        handle.async_pread(y, folder + "/x")
        handle.wait()
        yield "aio_handle", (x - y).abs().max().item()
    parts = [torch.randn(2, 3), torch.randn(4)]
    back = modules["utils"].unflatten(modules["utils"].flatten(parts), parts)
    yield (
        "flatten, unflatten",
        max((a - b).abs().max().item() for a, b in zip(parts, back, strict=True)),
    )


def count_calls(module):
    """Makes DeepSpeed's layers load a Calls object of the module; returns it."""
    from deepspeed.ops.op_builder import InferenceBuilder

    calls = Calls(module)
    InferenceBuilder.load = lambda builder, verbose=True: calls
    return calls


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a folder with DeepSpeed 0.7.7's deepspeed")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--all-builders", action="store_true", help="DeepSpeed's own too: minutes")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    put_back(given.device)
    sys.path.insert(0, str(given.checkout))

    from opdock.compat import deepspeed as compat

    compat.install()
    import layers_0_7_7 as layers
    from deepspeed.utils.logging import logger

    logger.setLevel("ERROR")
    where = torch.cuda.get_device_name() if given.device == "cuda" else "the CPU"
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"On {where}, Python {python}, torch {torch.__version__}")
    loaded, modules = load_builders(given.all_builders)
    for name, by in loaded.items():
        print(f"  {name:<34} {by}")
    failed = [name for name in SERVED if name not in modules]
    for name, error in served_ops(modules, given.device) if not failed else ():
        print(f"  {name:<34} {error:.1e}")
        failed += [name] * (not error <= BOUNDS["fp32"])
    calls = count_calls(modules["transformer_inference"])
    for name, suffix, (function, *arguments) in layers.cases(given.device):
        try:
            error = function(*arguments)
        except Exception as problem:
            print(f"  {name:<34} {suffix} {type(problem).__name__}: {problem}")
            failed.append(name)
            continue
        print(f"  {name:<34} {suffix} {error:.1e}")
        failed += [name] * (not error <= BOUNDS[suffix])
    print("Called by DeepSpeed:", ", ".join(sorted(calls.names)))
    if failed:
        sys.exit(f"wrong: {', '.join(failed)}")


if __name__ == "__main__":
    main()
