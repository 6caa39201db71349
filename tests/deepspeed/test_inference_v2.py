# SPDX-License-Identifier: Apache-2.0
"""Tests inference_core_ops, ragged_ops and ragged_device_ops: their functions, DeepSpeed's own
classes of kernels that call them, and DeepSpeed's engine. plugins/ragged/test_*.py has the
numbers."""

import gc
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from conftest import needs_deepspeed, run_python

import opdock

F32, F16 = torch.float32, torch.float16
QUIET = {"DS_ACCELERATOR": "cpu", "DS_SKIP_CUDA_CHECK": "1"}
IMPORTED = {"prelude": "import torch, deepspeed", "start": tuple(QUIET.items()), **QUIET}


@pytest.fixture
def core(compat):
    return compat.InferenceCoreBuilder().load()


@pytest.mark.parametrize("shape", [(3, 64), (2, 3, 40)])
@pytest.mark.parametrize("in_place", [False, True])
def test_norms(core, device, shape, in_place):
    x, y = torch.randn(2, *shape, device=device)
    gamma, beta = torch.randn(2, shape[-1], device=device)
    of = (shape[-1:], gamma, beta, 1e-5)

    def outs():
        a, b = x.clone(), y.clone()
        return (a, b, a, b) if in_place else (a, b, torch.empty_like(a), torch.empty_like(b))

    def near(found, wanted):
        assert (found - wanted).abs().max() < 2e-5

    a, b, sum_out, out = outs()
    assert core.pre_layer_norm(sum_out, out, a, b, gamma, beta, 1e-5) is None
    near(out, F.layer_norm(x + y, *of))
    assert torch.equal(sum_out, x + y)
    a, b, out, _ = outs()
    core.post_layer_norm(out, a, b, gamma, beta, 1e-5)
    near(out, F.layer_norm(x + y, *of))
    a, b, out, _ = outs()
    core.layer_norm(out, a, gamma, beta, 1e-5)
    near(out, F.layer_norm(x, *of))
    a, b, sum_out, out = outs()
    core.rms_pre_norm(out, sum_out, b, a, gamma, 1e-5)
    near(out, F.rms_norm(x + y, shape[-1:], gamma, 1e-5))
    assert torch.equal(sum_out, x + y)
    a, b, out, _ = outs()
    core.rms_norm(out, a, gamma, 1e-5)
    near(out, F.rms_norm(x, shape[-1:], gamma, 1e-5))


def test_activations(core, device):
    x, bias = torch.randn(5, 16, device=device), torch.randn(16, device=device)
    for number, function in [
        (0, lambda v: F.gelu(v, approximate="tanh")),
        (1, F.relu),
        (2, F.silu),
        (6, lambda v: v),
    ]:
        for added in (None, bias):
            found = x.clone()
            core.bias_activation(found, added, number)
            wanted = function(x if added is None else x + bias)
            assert (found - wanted).abs().max() < 1e-5
    for number, function in [
        (3, lambda v: F.gelu(v, approximate="tanh")),
        (4, F.relu),
        (5, F.silu),
    ]:
        found = torch.empty(5, 8, device=device)
        core.gated_activation(found, x, bias, number)
        gate, value = (x + bias)[:, ::2], (x + bias)[:, 1::2]
        assert (found - function(gate) * value).abs().max() < 2e-5
    with pytest.raises(opdock.InvalidArgumentError, match=r"found 3, wanted 0 \(gelu_tanh\), 1"):
        core.bias_activation(x, bias, 3)


@pytest.mark.parametrize("by_columns", [False, True])
def test_blas_linear(core, device, by_columns):
    x, weights = torch.randn(2, 3, 8, device=device), torch.randn(5, 8, device=device)
    if by_columns:
        weights = weights.t().contiguous().t()
    core.create_handle()
    out = torch.empty(2, 3, 5, device=device)
    core.blas_linear(out, x, weights)
    assert (out - F.linear(x, weights)).abs().max() < 1e-4
    a, b, out = (torch.randn(2, *of, device=device) for of in ((3, 4), (4, 5), (3, 5)))
    core.blas_4d_matmul(out, b, a)
    assert (out - a @ b).abs().max() < 1e-4


def test_fp6_is_refused(core):
    for name in ("preprocess_weight", "cuda_wf6af16_linear"):
        with pytest.raises(opdock.UnsupportedError, match=rf"{name}\(\): found a call.*FP6"):
            getattr(core, name)(torch.zeros(256, 64))


def test_views_of_a_buffer(compat, device):
    module = compat.RaggedUtilsBuilder().load()
    buffer = torch.arange(64, dtype=torch.uint8, device=device)
    like = torch.empty(2, 3, dtype=F16, device=device)
    view = module.allocate_view_on(like, buffer, 8)
    assert view.dtype == F16 and view.shape == (2, 3) and view.data_ptr() == buffer.data_ptr() + 8
    by_columns = module.allocate_view_like([3, 2], [1, 3], like, buffer[8:], 8)
    assert by_columns.stride() == (1, 3) and by_columns.data_ptr() == buffer.data_ptr() + 16
    kept = view.view(torch.int16).tolist()
    del buffer, by_columns
    gc.collect()
    torch.empty(64, dtype=torch.uint8, device=device).fill_(7)
    assert view.view(torch.int16).tolist() == kept
    with pytest.raises(opdock.InvalidArgumentError, match="found 56 for a view of 12 bytes"):
        module.allocate_view_on(like, torch.zeros(64, dtype=torch.uint8, device=device), 56)
    with pytest.raises(opdock.InvalidArgumentError, match="'offset': found 3, byte 3"):
        module.allocate_view_on(like, torch.zeros(64, dtype=torch.uint8, device=device), 3)
    host = module.allocate_fast_host_buffer(like)
    assert host.device.type == "cpu" and (host.shape, host.dtype) == (like.shape, F16)
    assert host.is_pinned() == (device != "cpu")


# The program drives DeepSpeed's own classes of kernels with its own batches.
KERNELS = """
import opdock, torch
from opdock.compat import deepspeed as compat
compat.install()
from deepspeed.accelerator import get_accelerator
get_accelerator().current_device = lambda: "cpu"
torch.manual_seed(1)
from deepspeed.inference.v2 import ragged
from deepspeed.inference.v2.inference_utils import ActivationType, DtypeEnum
from deepspeed.inference.v2.kernels import core_ops, ragged_ops as kernels
from deepspeed.inference.v2.ragged import DSSequenceDescriptor, RaggedBatchWrapper
from deepspeed.inference.v2.ragged.manager_configs import DSStateManagerConfig

half, near = torch.float16, lambda a, b: torch.testing.assert_close(a, b, rtol=3e-2, atol=4e-3)
batch = RaggedBatchWrapper(DSStateManagerConfig(max_ragged_sequence_count=4))
blocks, alive = iter(torch.randperm(20).tolist()), []
for tokens, seen in ((5, 0), (1, 130), (3, 62)):
    ids = torch.full((1, 4), -1, dtype=torch.int32)
    for i in range(-(-(tokens + seen) // 64)):
        ids[0, i] = next(blocks)
    one = DSSequenceDescriptor(0, (ids,), (ids.clone(),))
    one._seen_tokens = seen
    alive.append(one)
    batch.insert_sequence(one, torch.randint(50, (tokens,)))
batch.finalize(padding=True)
rows = batch.tensor_toks
assert rows == 64

table = torch.randn(50, 32).half()
out = torch.empty(rows, 32).half()
kernels.RaggedEmbeddingKernel(half, torch.int64, 32)(out, batch, table)
assert torch.equal(out[:9], table[batch.input_ids()[:9]])
last = torch.empty(3, 32).half()
kernels.RaggedLogitsGather(32, half)(last, out, batch)
assert torch.equal(last, out[[4, 5, 8]])

heads, kv, size = 6, 2, 64
cache = torch.zeros(20, 64, 2, kv, size).half()
qkv = torch.randn(rows, (heads + 2 * kv) * size).half()
before = qkv.clone()
kernels.LinearBlockedKVCopy(size, 4, kv, half)(cache, qkv[:, 2 * size:], batch)
k, v = qkv[:, heads * size:].reshape(rows, 2, kv, size).unbind(1)
places = [(0, i) for i in range(5)] + [(1, 130)] + [(2, 62 + i) for i in range(3)]
def at(kind, t):
    s, place = places[t]
    block = alive[s]._kv_cache_ids[0][0, place // 64]
    return cache[block, place % 64, kind]
for t in range(9):
    assert torch.equal(at(0, t), k[t]) and torch.equal(at(1, t), v[t]) and torch.equal(qkv, before)
trained = kernels.BlockedTrainedRotaryEmbeddings(size, 4, kv, half)
made = kernels.BlockedRotaryEmbeddings(size, 4, kv, half, size, 10000.0)
frequencies = 10000.0 ** (-torch.arange(0, size, 2).float() / size)
turned = []
for kernel, more in ((trained, (frequencies,)), (made, ())):
    one = before[:, 2 * size:].clone()
    kernel(cache, one, batch, *more)
    turned.append((one, cache.clone()))
    angles = torch.tensor([place for _, place in places])[:, None, None] * frequencies
    a, b = before[:9, 2 * size:].reshape(9, -1, size)[:, :4 + kv].float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    wanted = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    near(one[:9, :4 * size].reshape(9, 4, size), wanted[:, :4].half())
    for t in range(9):
        near(at(0, t), wanted[t, 4:].half())
assert all(torch.equal(x, y) for x, y in zip(*turned))

atoms = torch.empty(8, 8, dtype=torch.int32)
atoms, count = kernels.AtomBuilder()(atoms, batch, 4, 64)
assert count == 4 and atoms[:4, 3].tolist() == [4, 1, 1, 3]
cache.normal_()
q, out = torch.randn(rows, heads * size).half(), torch.zeros(rows, heads * size).half()
keys, values = ragged.split_kv(cache)
kernels.BlockedFlashAttn(size, half)(out, q, keys, values, atoms[:count], size ** -0.5)
for t, (s, place) in enumerate(places):
    ids = alive[s]._kv_cache_ids[0][0, :place // 64 + 1].long()
    own = [x[ids].flatten(0, 1)[:place + 1].float() for x in (keys, values)]
    own = [x.transpose(0, 1).repeat_interleave(heads // kv, 0) for x in own]
    row = q[t].float().view(heads, 1, size)
    wanted = torch.nn.functional.scaled_dot_product_attention(row, *own)
    near(out[t], wanted.flatten().half())
assert (out[9:] == 0).all()

experts, k = 8, 2
logits = torch.randn(rows, experts).half()
counts = torch.zeros(experts, dtype=torch.int32)
scores, (assignments, offsets, slots) = torch.empty(rows, k), (
    torch.empty(rows, k, dtype=torch.int32) for _ in range(3))
kernels.RaggedTopKGating(half)(counts, scores, assignments, offsets, logits, batch)
best, chosen = logits.float().softmax(-1).topk(k)
assert torch.equal(assignments[:9], chosen[:9].int()) and (assignments[9:] == -1).all()
assert counts.sum() == 18 and torch.allclose(scores[:9], best[:9], atol=1e-6)
x, moved = torch.randn(rows, 32).half(), torch.empty(rows * k, 32).half()
sums = torch.empty(experts, dtype=torch.int64)
kernels.MoEScatter(half, 32)(moved, sums, slots, x, counts, assignments, offsets)
assert torch.equal(sums, counts.cumsum(0)) and torch.equal(moved[slots[:9].long()][:, 1], x[:9])
again = torch.empty(rows, 32).half()
kernels.MoEGather(half, 32, True)(again, moved, scores, slots, counts)
near(again[:9], x[:9])
assert (counts == 0).all()

x, bias, gamma = torch.randn(5, 32).half(), torch.randn(32).half(), torch.randn(32).half()
one = x.clone()
core_ops.CUDABiasActivation(32, half, ActivationType.SILU)(one, bias)
near(one, torch.nn.functional.silu(x + bias))
one = torch.empty(5, 16).half()
core_ops.CUDAGatedActivation(16, half, ActivationType.SiGLU)(one, x, bias)
core_ops.BlasLibLinear(half)(torch.empty(5, 50).half(), x, table)
core_ops.CUDAFPLN(32, half)(torch.empty_like(x), x, gamma, bias)
one = core_ops.CUDAFPPostLN(32, half)(torch.empty_like(x), x, x, gamma, bias)
near(one, torch.nn.functional.layer_norm(2 * x, (32,), gamma, bias))
core_ops.CUDAFPPreLN(32, half)(torch.empty_like(x), torch.empty_like(x), x, x, gamma, bias)
residual, hidden = x.clone(), x.clone()
core_ops.CUDARMSPreNorm(32, half)(residual, hidden, residual, hidden, gamma)
near(residual, 2 * x)
near(hidden, torch.nn.functional.rms_norm(2 * x, (32,), gamma, 1e-5))
core_ops.CUDARMSNorm(32, half)(x, x, gamma)
try:
    core_ops.CUDAWf6Af16Linear()(x, x, None, None, x, 256, 5, 64)
    raise AssertionError("there is a kernel for FP6 by now")
except opdock.UnsupportedError as error:
    assert "FP6" in str(error)
"""


@needs_deepspeed
def test_deepspeeds_classes_of_kernels():
    run_python(KERNELS, **IMPORTED)


@needs_deepspeed
def test_deepspeeds_engine_gives_eagers_tokens(tmp_path):
    """build_hf_engine() loads a small Llama; the engine continues several prompts at once."""
    path = Path(__file__).with_name("small_llama.py")
    done = run_python(
        f"""
import opdock, sys
from opdock.compat import deepspeed as compat
compat.install()
sys.path.insert(0, {str(path.parent)!r})
import small_llama
small_llama.main({str(tmp_path)!r}, "cpu", "float16")
""",
        **IMPORTED,
    )
    assert "the tokens of eager" in done.stdout
