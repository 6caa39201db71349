# SPDX-License-Identifier: Apache-2.0
"""Tests DeepSpeed's own DeepSpeedTransformerLayer, unmodified, on Opdock's module."""

from pathlib import Path

from conftest import needs_deepspeed, run_python
from test_with_deepspeed import IMPORTED, INSTALL

pytestmark = needs_deepspeed

# Two layers, one after the other, so that the second's gradients pass through the first. The masks
# that dropout has drawn are taken from what the module returns. DeepSpeed's Python adds tokens up
# to a multiple of 16, of which the oracle knows nothing.
CODE = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    + INSTALL
    + """
import contextlib, io, itertools, torch
import transformer_cases as cases
from deepspeed.ops.transformer import DeepSpeedTransformerConfig, DeepSpeedTransformerLayer
from deepspeed.ops.transformer import transformer as theirs

def made(options, dtype, **more):
    config = DeepSpeedTransformerConfig(
        batch_size=4, hidden_size=options.hidden, intermediate_size=options.inner,
        heads=options.heads, attn_dropout_ratio=options.attn_dropout,
        hidden_dropout_ratio=options.hidden_dropout, num_hidden_layers=2, initializer_range=0.1,
        layer_norm_eps=options.eps, seed=options.seed, fp16=dtype == torch.float16,
        pre_layer_norm=options.pre, normalize_invertible=options.invertible,
        gelu_checkpoint=options.gelu_checkpoint, attn_dropout_checkpoint=options.attn_checkpoint,
        **more)
    with contextlib.redirect_stdout(io.StringIO()):
        layer = DeepSpeedTransformerLayer(config)
    for parameter, value in zip(layer.parameters(), cases.weights_of(options, dtype), strict=True):
        parameter.data = value
    return layer

def recorded(module):
    for name in ("forward_fp32", "forward_fp16"):
        def call(*arguments, of=getattr(module, name)):
            results = of(*arguments)
            masks.append(results[10:13])
            return results
        setattr(module, name, call)

def check(layers, options, suffix, length):
    dtype = cases.DTYPES[suffix]
    x, grad = (torch.randn(2, length, options.hidden).to(dtype) for _ in range(2))
    x.requires_grad_()
    mask = cases.mask_of(2, length, dtype)
    masks.clear()
    output = layers[0](x, mask)
    output = layers[1](output[0] if layers[0].config.return_tuple else output, mask)
    output = output[0] if layers[0].config.return_tuple else output
    output.backward(grad)
    leaves = [cases.exact(x)]
    wanted = leaves[0]
    for layer, drawn in zip(layers, masks, strict=True):
        leaves += [cases.exact(parameter) for parameter in layer.parameters()]
        padded = length + -length % 16
        keeps = [drawn[0].view(2, options.heads, padded, padded)[..., :length, :length]]
        keeps += [keep.view(2, padded, -1)[:, :length] for keep in drawn[1:]]
        wanted = cases.oracle(options, wanted, mask, leaves[-12:], keeps)
    assert cases.error_of(output, wanted.detach()) <= 2 * cases.ERRORS[suffix]
    found = [x.grad, *(p.grad for layer in layers for p in layer.parameters())]
    for one, other in zip(found, torch.autograd.grad(wanted, leaves, grad.double()), strict=True):
        assert one.dtype == dtype
        assert cases.error_of(one, other) <= 2 * cases.ERRORS[suffix], (options, suffix)

torch.manual_seed(1)
masks = []
ways = itertools.product(*[[False, True]] * 4)
for number, (pre, attn_checkpoint, invertible, gelu_checkpoint) in enumerate(ways):
    suffix = list(cases.DTYPES)[number % 3]
    ratios = ((0.1, 0.2), (0.0, 0.0))[number % 5 == 3]
    options = cases.Options(
        32, 2, 48, *ratios, pre, attn_checkpoint, invertible, gelu_checkpoint, seed=number % 2 - 1)
    stochastic = number % 5 == 0
    more = {"stochastic_mode": stochastic, "return_tuple": number % 2 == 1}
    layers = [made(options, cases.DTYPES[suffix], **more) for _ in range(2)]
    module = theirs.transformer_cuda_module
    if stochastic:
        module = theirs.stochastic_transformer_cuda_module
    assert module.__name__ == "opdock.compat.deepspeed.transformer"
    if not hasattr(module, "is_recorded"):
        recorded(module)
        module.is_recorded = True
    for length in (16, 17)[number % 2 :]:
        check(layers, options, suffix, length)
        for layer in layers:
            layer.zero_grad()

# Evaluation drops nothing, and neither does a pass without gradients; both are deterministic.
options = cases.Options(32, 2, 48, 0.5, 0.5)
layer = made(options, torch.float32)
x, mask = torch.randn(2, 32, 32), cases.mask_of(2, 32, torch.float32)
leaves = [cases.exact(tensor) for tensor in (x, *layer.parameters())]
wanted = cases.oracle(options, leaves[0], mask, leaves[1:], None, training=False).detach()
with torch.no_grad():
    assert cases.error_of(layer(x, mask), wanted) < cases.ERRORS["fp32"]
assert cases.error_of(layer.eval()(x, mask), wanted) < cases.ERRORS["fp32"]

# It learns.
options = cases.Options(32, 2, 48, 0.1, 0.1, seed=3)
layer = made(options, torch.float32).train()
optimizer = torch.optim.Adam(layer.parameters(), lr=3e-3)
losses = []
for _ in range(40):
    optimizer.zero_grad()
    loss = (layer(x, mask) - x.flip(1)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert sum(losses[-5:]) < 0.8 * sum(losses[:5]), losses
"""
)


def test_it_trains_unmodified():
    run_python(CODE, **IMPORTED)
