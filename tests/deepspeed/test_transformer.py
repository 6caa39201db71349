# SPDX-License-Identifier: Apache-2.0
"""Tests the training layer's functions against the same layer in float64, with the masks that
dropout has drawn."""

import itertools

import pytest
import torch
import transformer_cases as cases
from transformer_cases import Layer, Options, weights_of

import opdock
from opdock.compat.deepspeed import transformer
from opdock.compat.deepspeed.transformer import _fused

each_dtype = pytest.mark.parametrize("suffix", cases.DTYPES)
either = pytest.mark.parametrize


def made(suffix, options, device, seed=1, number=None):
    weights = weights_of(options, cases.DTYPES[suffix], device, seed)
    return Layer(transformer, suffix, options, weights, number)


def drawn(suffix, options, device, batch=3, length=17, seed=2):
    """Returns an input and a gradient of the output."""
    generator = torch.Generator().manual_seed(seed)
    shape = 2, batch, length, options.hidden
    numbers = torch.randn(shape, generator=generator)
    return [one.to(cases.DTYPES[suffix]).to(device, copy=True) for one in numbers]


def check(layer, suffix, x, mask, grad, more=1.0):
    """Runs a step, compares it with float64, and returns forward's results."""
    found, results = cases.step(layer, x, mask, grad)
    assert max(found.values()) <= more * cases.ERRORS[suffix], found
    return results


@pytest.fixture(params=[False, True])
def by_formulas(request, monkeypatch, device):
    """Lets the CPU take the formulas that only GPUs take otherwise, and the other way round."""
    monkeypatch.setattr(_fused, "on_gpu", lambda tensor: request.param)


@each_dtype
@either("pre", [True, False])
@either("attn_dropout", [0.0, 0.2])
@either("hidden_dropout", [0.0, 0.3])
@either("attn_checkpoint", [False, True])
@either("invertible", [False, True])
@either("gelu_checkpoint", [False, True])
def test_outputs_and_gradients(
    device,
    by_formulas,
    suffix,
    pre,
    attn_dropout,
    hidden_dropout,
    attn_checkpoint,
    invertible,
    gelu_checkpoint,
):
    options = Options(
        attn_dropout=attn_dropout,
        hidden_dropout=hidden_dropout,
        pre=pre,
        attn_checkpoint=attn_checkpoint,
        invertible=invertible,
        gelu_checkpoint=gelu_checkpoint,
    )
    layer = made(suffix, options, device)
    x, grad = drawn(suffix, options, device)
    check(layer, suffix, x, cases.mask_of(3, 17, x.dtype, device), grad)


@either(
    "options", [Options(160, 5, 200), Options(48, 1, 40), Options(520, 2, 64), Options(6, 2, 5)]
)
@either("batch, length", [(1, 1), (2, 33)])
@either("ratio", [0.0, 0.1])
def test_odd_sizes(device, options, batch, length, ratio):
    """Rows that are no multiple of 16 bytes, and heads that are wider than the op attention's."""
    layer = made("fp32", options._replace(attn_dropout=ratio, hidden_dropout=ratio), device)
    x, grad = drawn("fp32", options, device, batch, length)
    check(layer, "fp32", x, None, grad, 3)


@either("pre", [True, False])
@either("invertible", [True, False])
@either("suffix", ["fp32", "fp16"])
def test_norms_whose_weights_are_zero(device, pre, invertible, suffix):
    """normalize_invertible keeps what comes before a norm. DeepSpeed divides by the weights."""
    options = Options(pre=pre, invertible=invertible, hidden_dropout=0.1)
    layer = made(suffix, options, device)
    layer.weights[4][::3] = layer.weights[10][1::3] = 0
    x, grad = drawn(suffix, options, device)
    check(layer, suffix, x, None, grad)


def in_all_ways():
    for number, flags in enumerate(itertools.product([False, True], repeat=4)):
        pre, *rest = flags
        ratios = (0.1, 0.2) if number % 2 else (0.0, 0.0)
        yield Options(32, 2, 48, *ratios, pre, *rest)


def theirs(options, batch, length, size):
    """Returns how many bytes DeepSpeed's module keeps for backward, without input and output."""
    tokens = batch * length
    hidden, scores = tokens * options.hidden, tokens * options.heads * length
    elements = hidden * 5  # queries, keys, values; context; and what the MLP gets
    elements += hidden if options.pre or not options.invertible else 0  # before or behind the norm
    elements += 0 if options.invertible else hidden  # the sum before the second norm
    elements += scores * (1 if options.attn_checkpoint else 2)
    elements += tokens * options.inner * (1 if options.gelu_checkpoint else 2)
    elements += 4 * tokens  # means and variances
    return elements * size + scores + 2 * hidden  # with a byte for each element of three masks


def test_what_is_kept_takes_no_more_memory_than_deepspeeds():
    batch, length = 2, 32
    for options in in_all_ways():
        for suffix in ("fp32", "fp16"):
            layer = made(suffix, options, "cpu")
            x, grad = drawn(suffix, options, "cpu", batch, length)
            results = layer.forward(x, None)
            apart = [x, results[0]] if not (options.pre and options.invertible) else []
            found = cases.bytes_of(layer.kept(results) + apart) - cases.bytes_of(apart)
            limit = theirs(options, batch, length, x.element_size())
            assert found <= limit, (options, suffix, found, limit)
            gradients = layer.backward(grad, x, None, results)
            wrong = cases.errors(layer, x, None, grad, results, gradients)
            assert max(wrong.values()) <= cases.ERRORS[suffix], (options, wrong)


@either("number", [None, 7])
def test_layers_go_backward_out_of_order(device, number):
    """Also if another layer has taken a layer's number before its backward pass."""
    runs = []
    for i, options in enumerate(in_all_ways()):
        layer = made("fp32", options, device, i, number)
        x, grad = drawn("fp32", options, device, 1 + i % 3, 5 + i, seed=i)
        runs.append((layer, x, grad, layer.forward(x, None)))
    for layer, x, grad, results in runs[::2] + runs[1::2][::-1]:
        gradients = layer.backward(grad, x, None, results)
        found = cases.errors(layer, x, None, grad, results, gradients)
        assert max(found.values()) <= cases.ERRORS["fp32"], (layer.options, found)


def test_the_length_and_the_batch_change(device):
    options = Options(attn_dropout=0.1, hidden_dropout=0.1)
    layer = made("fp32", options, device)
    for batch, length in ((2, 16), (5, 5), (1, 40), (2, 16)):
        x, grad = drawn("fp32", options, device, batch, length)
        check(layer, "fp32", x, cases.mask_of(batch, length, x.dtype, device), grad)


@each_dtype
@either("pre", [True, False])
def test_evaluation_drops_nothing_and_keeps_nothing(device, suffix, pre):
    options = Options(attn_dropout=0.5, hidden_dropout=0.5, pre=pre)
    layer = made(suffix, options, device)
    x, _ = drawn(suffix, options, device)
    mask = cases.mask_of(3, 17, x.dtype, device)
    before = torch.get_rng_state()
    output, *kept = layer.forward(x, mask, training=False)
    assert torch.equal(before, torch.get_rng_state()) and len(kept) == 16
    assert cases.bytes_of(kept) == 0
    leaves = [cases.exact(tensor) for tensor in (x, *layer.weights)]
    wanted = cases.oracle(options, leaves[0], mask.cpu(), leaves[1:], None, training=False)
    assert cases.error_of(output, wanted.detach()) <= cases.ERRORS[suffix]


def masks(layer, x, count=1):
    """Returns the three masks of each of some passes."""
    return [[keep.cpu() for keep in layer.forward(x, None)[10:13]] for _ in range(count)]


def same(one, other):
    return all(torch.equal(*both) for both in zip(one, other, strict=True))


def test_rates_of_dropout(device):
    """Within four standard deviations, also of what two masks have in common."""
    options = Options(64, 4, 8, 0.1, 0.35)
    x, _ = drawn("fp32", options, device, 4, 64)
    for keeps in masks(made("fp32", options, device), x, 2):
        for keep, ratio in zip(keeps, (0.1, 0.35, 0.35), strict=True):
            deviation = (ratio * (1 - ratio) / keep.numel()) ** 0.5
            assert abs(keep.double().mean().item() - (1 - ratio)) < 4 * deviation
        both = (keeps[1] & keeps[2]).double().mean().item()
        share = 0.65**2
        assert abs(both - share) < 4 * (share * (1 - share) / keeps[1].numel()) ** 0.5


def test_seeds(device):
    """A layer with a seed draws from a generator that all layers share and the last one seeds. A
    layer without one draws from torch's generator."""
    options = Options(attn_dropout=0.3, hidden_dropout=0.3, seed=42)
    x, _ = drawn("fp32", options, device)
    state = torch.get_rng_state()
    first = masks(made("fp32", options, device), x, 2)
    assert torch.equal(state, torch.get_rng_state()) and not same(*first)
    layers = [made("fp32", options, device) for _ in range(2)]
    assert all(map(same, first, [masks(layer, x)[0] for layer in layers]))
    other = masks(made("fp32", options._replace(seed=43), device), x)[0]
    assert not same(first[0], other)
    layer = made("fp32", options._replace(seed=-1), device)
    torch.manual_seed(5)
    first = masks(layer, x, 2)
    torch.manual_seed(5)
    found = opdock.ops.dropout(torch.ones(3, 4, 17, 17, device=device), 0.3)[1]
    assert torch.equal(first[0][0], found.cpu()), "the plugin's mask, by torch's generator"
    torch.manual_seed(5)
    assert all(map(same, first, masks(layer, x, 2)))


def test_ratios_at_their_ends(device, by_formulas):
    """-1 is DeepSpeed's default for what was not set. With 1, nothing is kept."""
    layer = made("fp32", Options(attn_dropout=-1, hidden_dropout=-1), device)
    x, grad = drawn("fp32", layer.options, device)
    layer.options = layer.options._replace(attn_dropout=0, hidden_dropout=0)
    assert all(keep.all() for keep in check(layer, "fp32", x, None, grad)[10:13])
    layer = made("fp32", Options(attn_dropout=1, hidden_dropout=1), device)
    results = check(layer, "fp32", x, None, grad)
    assert torch.equal(results[0], x)


def test_masks_of_scores(device):
    """A number for each key, in any shape and floating dtype; or whatever is broadcast."""
    options = Options()
    layer = made("fp16", options, device)
    x, grad = drawn("fp16", options, device)
    keys = cases.mask_of(3, 17, torch.float32, device)
    for mask in (keys, keys[:, 0, 0], keys[:, 0], keys.half(), keys.double().view(-1)):
        results = layer.forward(x, mask)
        gradients = layer.backward(grad, x, mask, results)
        found = cases.errors(layer, x, keys, grad, results, gradients)
        assert max(found.values()) <= cases.ERRORS["fp16"]
    later = torch.ones(17, 17, device=device).triu(1) * -10000
    for mask in (later[None, None], (keys + later).expand(3, 4, 17, 17), keys[:1]):
        check(layer, "fp16", x, mask, grad)


def test_gradients_of_any_strides(device):
    layer = made("fp32", Options(hidden_dropout=0.1), device)
    x, grad = drawn("fp32", layer.options, device)
    for tensor in (grad.transpose(0, 1).contiguous().transpose(0, 1), grad[:, :1].expand(x.shape)):
        check(layer, "fp32", x, None, tensor)
    check(layer, "fp32", x.transpose(1, 2).contiguous().transpose(1, 2), None, grad)


def test_autocast_changes_nothing(device):
    layer = made("fp32", Options(attn_dropout=0.1), device)
    x, grad = drawn("fp32", layer.options, device)
    with torch.autocast(device, torch.bfloat16):
        check(layer, "fp32", x, None, grad)


def refused(call, *texts):
    with pytest.raises(opdock.OpdockError) as caught:
        call()
    for text in texts:
        assert text in str(caught.value), caught.value


def test_errors_name_the_function_and_the_argument():
    options = Options()
    layer = made("fp16", options, "cpu")
    x, grad = drawn("fp16", options, "cpu")
    results = layer.forward(x, None)
    forward = "forward_fp16(): argument"
    refused(lambda: layer.forward(x.float(), None), forward, "'input': found torch.float32")
    refused(lambda: layer.forward(x[0], None), forward, "'input': found shape (17, 64)")
    refused(lambda: layer.forward(None, None), forward, "'input': found a NoneType")
    refused(lambda: layer.forward(x, x), forward, "'input_mask': found shape (3, 17, 64)")
    refused(lambda: layer.forward(x, torch.ones(3, 17, dtype=torch.bool)), forward, "input_mask")
    refused(lambda: layer.forward(x, 1), forward, "'input_mask': found a int")
    refused(
        lambda: layer.backward(grad.float(), x, None, results), "backward_fp16()", "'grad_output'"
    )
    refused(lambda: layer.backward(grad[:1], x, None, results), "backward_fp16()", "(1, 17, 64)")
    copies = [tensor.clone() for tensor in results]
    refused(lambda: layer.backward(grad, x, None, copies), "'attn_layer_norm_var'", "not a copy")
    layer.weights[6] = layer.weights[6].t()
    refused(lambda: layer.forward(x, None), forward, "'inter_w': found shape (64, 96)")
    layer.number = -5
    refused(lambda: layer.forward(x, None), forward, "'layer_id': found -5", "call create_")
    refused(lambda: made("fp32", options._replace(heads=5), "cpu"), "'num_heads': found 5 for 64")
    refused(lambda: made("fp32", options._replace(attn_dropout=1.5), "cpu"), "'attn_dropout_ratio'")
    refused(lambda: transformer.forward_fp32(1, 2), "forward_fp32(): found 2 arguments, wanted")


def test_an_input_that_changed_is_refused_where_it_was_kept():
    options = Options(invertible=True)
    layer = made("fp32", options, "cpu")
    x, grad = drawn("fp32", options, "cpu")
    results = layer.forward(x, None)
    x.add_(1)
    refused(lambda: layer.backward(grad, x, None, results), "'inp_norm'", "changed in place")
