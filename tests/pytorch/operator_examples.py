# SPDX-License-Identifier: Apache-2.0
"""Calls of every operator, with torch tensors on the CPU."""

import importlib.util

import torch
import tree_plugins
from torch.utils._python_dispatch import TorchDispatchMode


def _of_plugins():
    """Yields (op, arguments, keywords) of the examples that the plugins bring for gradients."""
    for name in tree_plugins.declared():
        path = tree_plugins.FOLDER / name / "gradient_examples.py"
        if not path.exists():
            continue
        spec = importlib.util.spec_from_file_location(f"{name}_gradient_examples", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for op, args, keywords in module.examples():
            keywords = {key: _torch(x) for key, x in keywords.items() if key != "generator"}
            yield op, tuple(map(_torch, args)), keywords


def _torch(x):
    if hasattr(x, "__array__"):
        return torch.from_numpy(x.copy())
    return torch.float64 if x == "float64" else x


def differentiable():
    """Returns the calls of ops that declare gradients, in float64."""
    return list(_of_plugins())


class _Recorder(TorchDispatchMode):
    """Records the calls of Opdock's operators."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "opdock":
            self.calls.append((func._opname, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def backward():
    """Returns the calls that the backward passes of differentiable() make."""
    found = []
    for name, args, keywords in differentiable():
        args = [
            x.requires_grad_() if isinstance(x, torch.Tensor) and x.dtype == torch.float64 else x
            for x in args
        ]
        results = getattr(torch.ops.opdock, name)(*args, **keywords)
        flat = torch.utils._pytree.tree_leaves(results)
        total = [x.sum() for x in flat if isinstance(x, torch.Tensor) and x.requires_grad]
        if not total:
            continue
        with _Recorder() as recorder:
            sum(total).backward()
        found += [(n, _detached(a), k) for n, a, k in recorder.calls]
    return found


def _detached(args):
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda x: x.detach().clone(), args)


def _of_ragged():
    """Returns calls of ragged's ops: a batch of one sequence of two tokens, and one of padding."""
    numbers = {"dtype": torch.int32}
    batch, tokens = torch.tensor([2, 1], **numbers), torch.tensor([0, 0, -1], **numbers)
    sequences, table = torch.tensor([[0, 2, 1, 0]], **numbers), torch.tensor([[1, 0]], **numbers)
    of = batch, sequences, tokens
    x, k, q = torch.randn(3, 8), torch.randn(3, 8), torch.randn(3, 16)
    cache, ids = torch.randn(2, 2, 2, 1, 8), torch.tensor([3, 1, -1])
    atoms = torch.tensor([[0, 0, 0, 2, 2, 3, 1, 0]], **numbers)
    counts = torch.tensor([1, 1], **numbers)
    slots = torch.tensor([[1], [0], [-1]], **numbers)
    return [
        ("append_blocks", (k, k.clone(), cache, *of, table, q, torch.rand(4)), {}),
        ("attention_by_atoms", (torch.zeros(3, 16), q, *cache.unbind(2), atoms, table), {}),
        ("bias_activation", (x, torch.randn(8)), {"activation": "silu"}),
        ("build_atoms", (atoms.clone(), *of[:2], torch.tensor([64]), 2, 2), {}),
        ("gather_last_tokens", (x, *of[:2]), {}),
        ("interleaved_gate", (x,), {}),
        ("moe_gather", (x, torch.rand(3, 1), slots, counts.clone()), {}),
        ("moe_scatter", (x, counts, slots, torch.zeros_like(slots)), {}),
        ("ragged_embed", (x, ids.clamp(max=2), *of), {}),
        ("top_k_gating", (x, batch, 2), {}),
    ]


def others():
    """Returns calls of the ops without gradients."""
    torch.manual_seed(3)
    x, residual = torch.randn(2, 4, 8), torch.randn(2, 4, 8)
    weight, square = torch.randn(6, 8), torch.randn(8, 8)
    vector = torch.randn(8)
    q, k = torch.randn(1, 2, 2, 8), torch.randn(1, 2, 1, 8)
    caches = [torch.zeros(1, 4, 1, 8) for _ in range(2)]
    start = torch.tensor([1], dtype=torch.int32)
    lists = [[torch.randn(3), torch.randn(2, 2)] for _ in range(3)]
    step = torch.tensor(0.0)
    # The gradient of the result, queries, and keys, which are the values too.
    heads = torch.randn(1, 2, 2, 8), torch.randn(1, 2, 2, 8), torch.randn(1, 3, 1, 8)
    bias = torch.randn(1, 2, 1, 3)
    chosen = torch.tensor([[3, 0], [1, 2]], dtype=torch.int32)
    codes = torch.cat([torch.randint(256, (8, 12)), torch.tensor([[0, 0, 0, 63]] * 8)], 1).byte()
    squares = [torch.rand(3), torch.rand(2, 2)]
    return [
        *_of_ragged(),
        ("adagrad_", (*lists[:2], squares), {"lr": 0.1}),
        ("adam_", (*lists, squares, step), {"lr": 0.1}),
        ("adamw_", (*lists, squares, step), {"weight_decay": 0.1}),
        ("aio_zeros_like", (x,), {}),
        ("append_kv", (q, k, k, *caches, start), {}),
        ("bias_add_layer_norm", (x, residual, vector, vector, vector), {}),
        ("bias_add_layer_norm", (x, residual, vector), {"with_sum": False}),
        ("attention_added_backward", (*heads, *heads[2:3], heads[0], bias), {"bias": bias}),
        ("copy_to_device", (torch.zeros(2, 3), torch.randn(2, 3, dtype=torch.float64)), {}),
        ("copy_to_host", (torch.zeros(2, 3), torch.randn(2, 3).half()), {}),
        ("cross_entropy_with_gradient", (torch.randn(3, 5), torch.tensor([0, 4, 2])), {}),
        ("dequantize", (torch.ones(4, 8, dtype=torch.int8), torch.rand(4)), {}),
        (
            "dequantize",
            (torch.ones(4, 8, dtype=torch.int8), torch.rand(2)),
            {"dtype": torch.float16},
        ),
        ("dequantize_groups", (torch.ones(4, 8, dtype=torch.int8), torch.rand(4, 2), 4), {}),
        (
            "dequantize_unsigned",
            (torch.ones(4, 8, dtype=torch.uint8), *torch.rand(2, 4).half()),
            {},
        ),
        ("dropout_add", (x, residual, 0.25), {}),
        ("einsum_sec_sm_ecm", (torch.randn(3, 2, 4), torch.randn(3, 5)), {}),
        ("fp_dequantize", (codes,), {"dtype": torch.half}),
        ("fp_dequantize", (codes,), {"exponent_bits": 3, "mantissa_bits": 2}),
        ("fp_matmul", (x.half(), codes[:8].contiguous(), torch.rand(4)), {}),
        ("fp_quantize", (x.half(),), {}),
        ("fp_quantize", (x.bfloat16(),), {"exponent_bits": 2, "mantissa_bits": 1}),
        ("fp_selective_dequantize", (codes, torch.tensor([2, 0, 2], dtype=torch.int32)), {}),
        ("fake_quantize_", (torch.randn(4, 8), 4), {"symmetric": False}),
        ("gated_linear", (x, weight), {}),
        ("linear", (x, weight, torch.randn(6)), {"activation": "relu"}),
        ("linear", (x, weight.t().contiguous()), {"transposed": False}),
        ("mlp", (x, weight, torch.randn(8, 6)), {}),
        ("lamb_", (*lists, squares, step), {"lr": 0.1}),
        ("lion_", lists, {"lr": 0.1}),
        ("newton_schulz", (square / 9,), {"steps": 2}),
        ("noop", (x,), {}),
        ("noop_launch", (x,), {}),
        ("norm_linear", (x, weight), {"norm": "rms"}),
        ("norm_mlp", (x, square, square), {}),
        ("norm_mlp", (x, square, square), {"residual": residual}),
        ("pad_rows", (x, 5, 9), {}),
        ("quantize_groups", (x, 8), {"symmetric": False}),
        ("sum_quantized", (torch.ones(4, 8, dtype=torch.int8), torch.rand(4, 1), 2, 2), {}),
        ("token_scatter_", (torch.zeros(2, 4, 8), x[:, :2].contiguous(), chosen), {}),
        ("token_sort", (chosen, 4), {}),
    ]


def unique(calls):
    """Returns the calls with one test's name each."""
    count = {}
    for name, args, keywords in calls:
        count[name] = count.get(name, 0) + 1
        yield f"{name}-{count[name]}", name, args, keywords


def detached(args):
    """Returns the arguments with copies of their tensors."""
    return _detached(args)


def differentiated(args):
    """Returns the arguments with copies of their tensors, of which those in float64 require a
    gradient."""
    return torch.utils._pytree.tree_map_only(
        torch.Tensor,
        lambda x: x.detach().clone().requires_grad_(x.dtype == torch.float64),
        args,
    )
