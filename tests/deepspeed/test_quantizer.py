# SPDX-License-Identifier: Apache-2.0
"""Tests the module quantizer: what it adds to the plugin's ops, and DeepSpeed itself, unmodified,
with quantised weights and gradients. The plugin's own tests compare the ops bit for bit."""

import sys
from types import SimpleNamespace

import pytest
from conftest import needs_deepspeed, run_python

import opdock

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def module(compat):
    return compat.QuantizerBuilder().load()


def values(*shape, seed=0, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_types(module):
    kind = module.QuantizationType
    assert (module.Symmetric, module.Asymmetric) == (kind.Symmetric, kind.Asymmetric)
    assert [int(kind.Symmetric), int(kind.Asymmetric)] == [0, 1]


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", [0, 1])
def test_quantize_and_dequantize(module, kind, bits):
    x = values(4, 3, 40)
    q, params = module.quantize(x, 12, bits, module.QuantizationType(kind))
    wanted = opdock.ops.quantize_groups(x, 12, bits, symmetric=kind == 0)
    assert torch.equal(q, wanted[0]) and torch.equal(params, wanted[1])
    assert q.shape == (4, 3, 40 * bits // 8) and params.shape == (12, kind + 1)
    # ZeRO passes its parameters flat, and the last ones of a buffer.
    for same in (params, params.view(-1), torch.cat([params.view(-1), params.view(-1)])):
        half = module.dequantize(q, same, 12, bits, kind)
        full = module.dequantize_fp32(q.view(torch.uint8), same, 12, bits, kind)
        assert (half.dtype, full.dtype, half.shape) == (torch.float16, torch.float32, x.shape)
        assert torch.equal(full, opdock.ops.dequantize_groups(q, params, bits))
        assert torch.equal(half, full.half())
    step = params[:, :1].view(4, 3, 1)
    assert ((full - x.float()).abs() <= step * 1.001).all(), "a group's maximum loses a step"


def test_what_deepspeed_reads_wrongly(module):
    """Other dtypes, and tensors with gaps, are the numbers that they have."""
    x = values(8, 16)
    q, params = module.quantize(x, 8, 8, module.Symmetric)
    for other in (x.float(), x.double(), x.t().contiguous().t(), x.clone().requires_grad_()):
        found = module.quantize(other, 8, 8, module.Symmetric)
        assert torch.equal(found[0], q) and torch.equal(found[1], params)
        assert not found[1].requires_grad
    wide = values(8, 16, dtype=torch.bfloat16)
    found, _ = module.quantize(wide, 8, 8, 0)
    assert torch.equal(found, module.quantize(wide.float(), 8, 8, 0)[0])
    spread = q.t().contiguous().t()
    wanted = module.dequantize(q, params, 8, 8, 0)
    assert torch.equal(module.dequantize(spread, params.double(), 8, 8, 0), wanted)
    found = module.swizzle_quant(x.t().contiguous().t(), 8, 8, 0, 1, 2, 2)
    assert torch.equal(found[0], module.swizzle_quant(x, 8, 8, 0, 1, 2, 2)[0])


def test_the_last_group_may_be_shorter(module):
    """A gathered parameter lacks the elements that ZeRO has padded it with."""
    for bits, cut in ((8, 3), (4, 2)):
        x = values(4, 24)
        q, params = module.quantize(x, 4, bits, module.Asymmetric)
        whole = module.dequantize(q, params, 4, bits, module.Asymmetric).view(-1)
        part = q.view(-1)[: (96 - cut) * bits // 8]
        found = module.dequantize(part, params, 4, bits, module.Asymmetric)
        assert torch.equal(found, whole[: 96 - cut])
    with pytest.raises(opdock.InvalidArgumentError, match="'groups': found 40 groups of 41"):
        module.dequantize(torch.ones(41, dtype=torch.int8), torch.ones(40), 40, 8, 0)


def test_the_layout_of_0_7(module, monkeypatch):
    x = values(4, 16) + 3
    new = module.quantize(x, 4, 8, module.Asymmetric)
    for version, is_old in (("0.7.7", True), ("0.19.8", False), ("0.8.0", False)):
        monkeypatch.setitem(sys.modules, "deepspeed", SimpleNamespace(__version__=version))
        q, params = module.quantize(x, 4, 8, module.Asymmetric)
        assert torch.equal(params, new[1]) != is_old
        # DeepSpeed's dequantize adds the offset as it is.
        wanted = opdock.ops.dequantize_groups(q, params)
        assert torch.equal(module.dequantize_fp32(q, params, 4, 8, module.Asymmetric), wanted)
        assert torch.equal(module.quantize(x, 4, 8, 0)[1], opdock.ops.quantize_groups(x, 4)[1])


@pytest.mark.parametrize("bits", [8, 4])
def test_unsigned(module, bits):
    q = torch.arange(256, dtype=torch.int16).to(torch.uint8).repeat(2).view(16, 32)
    scale, least = values(16, 1).abs() + 1, values(16, 1, seed=1)
    size = 32 * 8 // bits
    function = getattr(module, f"dequantize_int{bits}_to_half_experimental")
    found = function(q, scale, least, 16, size)
    assert found.shape == (16, size)
    assert torch.equal(found, opdock.ops.dequantize_unsigned(q, scale, least, bits))
    with pytest.raises(opdock.InvalidArgumentError, match="'data_in': found 512 bytes"):
        function(q, scale, least, 8, size)
    with pytest.raises(opdock.InvalidArgumentError, match="'min_val_buffer': found 3 numbers"):
        function(q, scale, least[:3], 16, size)


@pytest.mark.parametrize("bits,kind", [(4, 0), (8, 1)])
@pytest.mark.parametrize("nodes,devices", [(1, 3), (2, 4), (2, 1)])
def test_reduction_over_nodes(module, nodes, devices, bits, kind):
    """The steps of all_to_all_quant_reduce() for all ranks, with the messages that they exchange:
    each rank gets its part of the mean over the ranks."""
    world, groups = nodes * devices, nodes * devices * 2
    gradients = [values(groups, 64, seed=rank) for rank in range(world)]
    sent = [module.swizzle_quant(g, groups, bits, kind, 1, nodes, devices) for g in gradients]

    def exchange(messages, members):
        """What all_to_all_single() gives to each of the members."""
        parts = {rank: message.chunk(len(members)) for rank, message in messages.items()}
        return {m: torch.cat([parts[rank][i] for rank in members]) for i, m in enumerate(members)}

    reduced = {}
    for node in range(nodes):
        members = [node * devices + i for i in range(devices)]
        q, params = (exchange({m: sent[m][i] for m in members}, members) for i in (0, 1))
        for m in members:
            arguments = (q[m], params[m], groups, groups // devices, bits, kind, devices)
            reduced[m] = module.quantized_reduction(*arguments)
    mean = sum(g.float() for g in gradients) / world
    scale = 1 if bits == 8 else 16
    for device in range(devices):
        members = [node * devices + device for node in range(nodes)]
        q, params = (exchange({m: reduced[m][i] for m in members}, members) for i in (0, 1))
        for m in members:
            found = module.dequantize(q[m], params[m], params[m].shape[0], bits, kind)
            found = found.float().view(nodes, -1).sum(0) / world
            part = mean.view(world, -1)[m]
            assert (found - part).abs().max() < 0.05 * scale, (m, (found - part).abs().max())
            assert (found - part).abs().mean() < 0.008 * scale


@pytest.mark.parametrize("sort", ["fp32", "fp16"])
@pytest.mark.parametrize("kind", ["", "_asym"])
def test_fake_quantizers(module, kind, sort):
    """DeepSpeed's test: both kinds of rounding stay beside the numbers, in place."""
    dtype = {"fp32": torch.float32, "fp16": torch.float16}[sort]
    for shape, groups, bits in [((16, 128), 1, 8), ((128, 256), 16, 4), ((16, 128), 16, 8)]:
        x = values(*shape, dtype=dtype).abs()
        lines = x.float().view(groups, -1)
        most, least = lines.amax(1), lines.amin(1) if kind else -lines.amax(1)
        step = ((most - least) / 2**bits + 1e-5).view(groups, 1)
        for name, allowed in (
            (f"ds_quantize{kind}_{sort}", 0.5),
            (f"ds_sr_quantize{kind}_{sort}", 1),
        ):
            y = x.clone()
            assert getattr(module, name)(y, groups, bits) is y
            moved = (y.float().view(groups, -1) - lines).abs()
            inside = moved <= step * allowed * 1.01 + 2e-3 * lines
            # A group's greatest numbers may be limited by one step more.
            assert (inside | (lines >= (most.view(groups, 1) - step))).all()
            assert moved.any()
        spread = x.t().clone().t()
        nearest = getattr(module, f"ds_quantize{kind}_{sort}")
        assert torch.equal(nearest(spread, groups, bits), nearest(x, groups, bits))
        with pytest.raises(opdock.InvalidArgumentError, match="'x': found torch.bfloat16"):
            nearest(x.bfloat16(), groups, bits)


def test_bad_arguments(module):
    x, q = values(4, 6), torch.ones(4, 6, dtype=torch.int8)
    for name, call in {
        "groups": lambda: module.quantize(x, 5, 8, 0),
        "bits": lambda: module.quantize(x, 4, 3, 0),
        "quant_type": lambda: module.quantize(x, 4, 8, 2),
        "x": lambda: module.quantize(torch.ones(2, 3, dtype=torch.int32), 2, 8, 0),
        "params": lambda: module.dequantize(q, torch.ones(7), 4, 8, 1),
        "q": lambda: module.dequantize(q.int(), torch.ones(4), 4, 8, 0),
        "tensors": lambda: module.quantized_reduction(q, torch.ones(4), 4, 2, 8, 0, 4),
    }.items():
        with pytest.raises(opdock.OpdockError, match=f"'{name}'"):
            call()
    with pytest.raises(TypeError):
        module.quantize(x, 4)


@needs_deepspeed
def test_quantised_weights_of_inference():
    """DeepSpeed's DeQuantizer gives what its own fallback in PyTorch does."""
    run_python(
        """
import torch
from opdock.compat import deepspeed as compat
compat.install()
from deepspeed.inference.quantization import utils
for bits in (8, 4):
    config = {"num_bits": bits, "symmetric": False, "group_size": 32, "group_dim": 1}
    x = torch.randn(6, 96).half()
    q = utils.Quantizer(config).quantize(x)
    theirs = utils.DeQuantizer({**config, "group_dim": 1}, torch.float16)
    found = theirs.dequantize(*q)
    utils._get_device = lambda: "none"
    assert torch.equal(found, theirs.dequantize(*q))
    utils._get_device = lambda: "cpu"
    assert (found - x).abs().max() < (0.03 if bits == 8 else 0.3)
assert utils.quantizer_module.__name__ == "opdock.compat.deepspeed.quantizer"
""",
        prelude="import torch, deepspeed",
        start=(("DS_ACCELERATOR", "cpu"), ("DS_SKIP_CUDA_CHECK", "1")),
    )


# Two processes train the same layers with and without ZeRO++, each on a node of its own: DeepSpeed
# quantises gradients only between nodes. On the CPU it knows bfloat16 alone. gloo, other than NCCL,
# compares the shapes of what it gathers: those of the scales differ, so they are flattened.
TRAINING = """
import importlib, os, sys, torch
from opdock.compat import deepspeed as compat
compat.install()
import deepspeed
importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
gather = torch.distributed.all_gather_into_tensor

def gather_flat(output_tensor, input_tensor, **keywords):
    return gather(output_tensor.view(-1), input_tensor.reshape(-1), **keywords)

torch.distributed.all_gather_into_tensor = gather_flat
child = os.fork()
rank = 0 if child else 1
os.environ.update(RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE="2", LOCAL_SIZE="1")
where = {"init_method": f"file://{sys.argv[1]}", "rank": rank, "world_size": 2}
torch.distributed.init_process_group("gloo", **where)
deepspeed.init_distributed(dist_backend="gloo", verbose=False)

def train(is_quantized):
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)
    model = torch.nn.Sequential(*layers)
    zero = {"stage": 3, "stage3_param_persistence_threshold": 0, "reduce_bucket_size": 100000}
    zero |= {f"zero_quantized_{what}": is_quantized for what in ("weights", "gradients")}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": 8, "bf16": {"enabled": True}, "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}}})
    torch.manual_seed(rank)
    x = torch.randn(8, 64)
    losses = []
    for _ in range(8):
        loss = (engine(x.bfloat16()).float() - x[:, :32].sin()).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses

plain, quantized = train(False), train(True)
from opdock.compat.deepspeed import quantizer
from deepspeed.runtime.comm import coalesced_collectives
from deepspeed.runtime.zero.partition_parameters import CUDAQuantizer
assert coalesced_collectives.quantizer_module is quantizer
assert CUDAQuantizer.quantizer_cuda_module is quantizer
assert plain != quantized, "nothing was quantised"
assert plain[-1] < 0.2 * plain[0]
assert max(abs(a - b) for a, b in zip(plain, quantized)) < 0.005, (plain, quantized)
torch.distributed.barrier()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@needs_deepspeed
def test_zero_with_quantised_weights_and_gradients(tmp_path):
    run_python(
        TRAINING,
        tmp_path / "store",
        prelude="import torch, deepspeed",
        start=(("DS_ACCELERATOR", "cpu"), ("DS_SKIP_CUDA_CHECK", "1")),
        DS_ACCELERATOR="cpu",
        DS_SKIP_CUDA_CHECK="1",
    )
