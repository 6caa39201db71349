# SPDX-License-Identifier: Apache-2.0
"""Tests the module random_ltd: its functions, and the gradients that DeepSpeed's Python makes of
them. The plugin's tests have the shapes."""

import pytest
import torch
from conftest import needs_deepspeed, run_python

import opdock


@pytest.fixture
def module(compat):
    return compat.RandomLTDBuilder().load()


def random(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def chosen(*rows):
    return torch.tensor(rows, dtype=torch.int32)


def test_sort(module, device):
    index = torch.stack([torch.randperm(5000)[:3000] for _ in range(4)]).view(2, 2, 3000)
    index = index.to(device, torch.int32)
    wanted = index.sort(-1).values
    assert module.token_sort_(index, 5000) is index
    assert torch.equal(index, wanted)
    part = torch.stack([wanted.flip(-1)] * 2, -1)[..., 0]  # with gaps
    assert module.token_sort_(part, 5000) is part and torch.equal(part, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("channels", [8, 12, 1030])
def test_gather_and_scatter(module, device, dtype, batch_first, channels):
    x, index = random(2, 9, channels, dtype=dtype).to(device), chosen([8, 0, 3], [1, 2, 7])
    index = index.to(device)
    rows = torch.arange(2, device=device)[:, None]
    wanted = x[rows, index.long()]
    turned = (lambda t: t) if batch_first else (lambda t: t.transpose(0, 1))
    found = module.token_gather(turned(x), index, batch_first)
    assert found.is_contiguous() and torch.equal(turned(found), wanted)
    part = random(2, 3, channels, dtype=dtype).to(device) * 2
    expected = x.clone()
    expected[rows, index.long()] = part
    all_of_it = turned(x.clone())
    assert module.token_scatter_(all_of_it, turned(part), index, batch_first) is all_of_it
    assert torch.equal(turned(all_of_it), expected)


def test_other_strides(module, device):
    """DeepSpeed's kernels read columns and rows of stride 0 as if they were rows."""
    index = chosen([2, 0], [1, 3]).to(device)
    rows = torch.arange(2, device=device)[:, None]
    x, part = random(2, 6, 4).transpose(1, 2).to(device), random(2, 6, 2).transpose(1, 2).to(device)
    assert torch.equal(module.token_gather(x, index, True), x[rows, index.long()])
    wanted = x.contiguous()
    wanted[rows, index.long()] = part
    assert module.token_scatter_(x, part, index, True) is x
    assert torch.equal(x, wanted)
    ones = torch.ones((), device=device).expand(2, 4, 6)
    found = module.token_scatter_(ones, part, index, True)
    wanted = torch.ones(2, 4, 6, device=device)
    wanted[rows, index.long()] = part
    assert torch.equal(found, wanted) and (ones == 1).all()


def test_masks(module, device):
    mask = torch.arange(2 * 25, device=device).view(2, 1, 5, 5)
    index = chosen([[0, 3], [1, 4]], [[2, 3], [0, 1]]).to(device)  # [layers, B, r]
    found = module.mask_gather_bert(mask, index)
    assert found.shape == (2, 2, 1, 2, 2)
    for layer in range(2):
        for row in range(2):
            at = index[layer, row].long()
            assert torch.equal(found[layer, row, 0], mask[row, 0][at][:, at])
    found = module.mask_gather_gpt(mask, 3)
    assert found.is_contiguous() and torch.equal(found, mask[:, :, :3, :3])


def test_what_does_not_fit_is_refused(module):
    x, part, index = random(2, 4, 6), random(2, 2, 6), chosen([0, 1], [2, 3])
    for call, text in [
        (lambda: module.token_sort_(index, 9), "int32 of 2 dimensions, wanted torch.int32 of 3"),
        (
            lambda: module.token_sort_(index[None], 3),
            "found 3 in row 1, wanted numbers from 0 to 2",
        ),
        (lambda: module.token_gather(x, index.long(), True), "found torch.int64 of 2 dim"),
        (lambda: module.token_gather(x, index[:1], True), "'index': found size 1"),
        (lambda: module.token_scatter_(x, part.half(), index, True), "'part': found dtype float16"),
        (lambda: module.mask_gather_bert(x[:, None], index), "wanted torch.int32 of 3"),
    ]:
        with pytest.raises(opdock.OpdockError, match=text):
            call()


THEIRS = """
import types
import torch
from opdock.compat import deepspeed as compat
compat.install()
from deepspeed.ops.random_ltd import GatherTokens, ScatterTokens, bert_sample_tokens
from deepspeed.ops.random_ltd import gpt_sample_tokens
from deepspeed.runtime.data_pipeline.constants import *
from deepspeed.runtime.data_pipeline.data_routing.basic_layer import RandomLayerTokenDrop
torch.manual_seed(0)

mask = torch.rand(3, 1, 20, 20)
index, part = bert_sample_tokens(7, 20, 3, 2, "cpu", mask)
assert index.dtype == torch.int32 and index.shape == (2, 3, 7)
assert (index.diff(dim=-1) > 0).all() and len(part) == 2 and part[1].shape == (3, 1, 7, 7)
index, part = gpt_sample_tokens(7, 20, 3, 2, "cpu", mask)
assert (index.diff(dim=-1) > 0).all() and torch.equal(part, mask[:, :, :7, :7])

def dropped(x, layer, index, batch_first):
    x = x if batch_first else x.transpose(0, 1)
    rows = torch.arange(len(index))[:, None]
    part = x[rows, index.long()]
    part = layer(part if batch_first else part.transpose(0, 1))
    x = x.clone()
    x[rows, index.long()] = part if batch_first else part.transpose(0, 1)
    return x if batch_first else x.transpose(0, 1)

for order in ("batch_seq_dim", "seq_batch_dim"):
    batch_first = order == "batch_seq_dim"
    kept = types.SimpleNamespace(
        state={RANDOM_LTD_MAX_VALUE: 20}, random_ltd_layer_num=2, get_current_seq=lambda: 7
    )
    config = {RANDOM_LTD_MODEL_MASK_NAME: None, RANDOM_LTD_MICRO_BATCH_SIZE: 3,
              RANDOM_LTD_HIDDEN_STATE_ORDER: order, RANDOM_LTD_MODEL_TYPE: "decoder"}
    layers = [torch.nn.Linear(8, 8, dtype=torch.float64) for _ in range(2)]
    drops = [RandomLayerTokenDrop(layer) for layer in layers]
    for number, drop in enumerate(drops):
        drop.init_config(config, kept, number)
    made = torch.randn((3, 20, 8) if batch_first else (20, 3, 8), dtype=torch.float64)
    weight = torch.randn_like(made)
    gradients = []
    for own in (True, False):
        x = made.clone().requires_grad_()
        y = x * 2
        for number in range(2):
            if own:
                y = drops[number](y)  # the first of them draws the tokens of both
            else:
                index = kept.state[RANDOM_LTD_SAMPLE_INDEX][number]
                y = dropped(y, layers[number], index, batch_first)
        for parameter in layers[0].parameters():
            parameter.grad = None
        (y * weight).sum().backward()
        gradients.append((y.detach(), x.grad, layers[0].weight.grad.clone()))
    for found, wanted in zip(*gradients):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
import sys
assert "opdock.compat.deepspeed.random_ltd" in sys.modules
"""


@needs_deepspeed
def test_deepspeeds_own_python():
    """Its samples, and two layers of RandomLayerTokenDrop with their gradients, unmodified."""
    quiet = {"DS_ACCELERATOR": "cpu", "DS_SKIP_CUDA_CHECK": "1"}
    run_python(THEIRS, prelude="import torch, deepspeed", start=tuple(quiet.items()), **quiet)
