# SPDX-License-Identifier: Apache-2.0
"""A training layer as DeepSpeed's Python calls it, and the same layer in float64."""

import itertools
from typing import NamedTuple

import torch

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
#: the largest error of an output or a gradient, relative to its largest element: a few roundings of
#: what lies between
ERRORS = {"fp32": 2e-6, "fp16": 5e-3, "bf16": 4e-2}
NAMES = ["attn_qkvw", "attn_qkvb", "attn_ow", "attn_ob", "attn_nw", "attn_nb"]
NAMES += ["inter_w", "inter_b", "output_w", "output_b", "norm_w", "norm_b"]
_numbers = itertools.count(1000)


class Options(NamedTuple):
    """What DeepSpeed's configuration has, without what only DeepSpeed's Python reads."""

    hidden: int = 64
    heads: int = 4
    inner: int = 96
    attn_dropout: float = 0.0
    hidden_dropout: float = 0.0
    pre: bool = True
    attn_checkpoint: bool = False
    invertible: bool = False
    gelu_checkpoint: bool = False
    eps: float = 1e-5
    seed: int = -1


def weights_of(options, dtype, device="cpu", seed=1):
    """Returns the 12 weights; those of norms are not 1 and 0."""
    generator = torch.Generator().manual_seed(seed)
    hidden, inner = options.hidden, options.inner
    shapes = [
        (3 * hidden, hidden),
        (3 * hidden,),
        (hidden, hidden),
        (hidden,),
        (hidden,),
        (hidden,),
    ]
    shapes += [(inner, hidden), (inner,), (hidden, inner), (hidden,), (hidden,), (hidden,)]
    made = []
    for name, shape in zip(NAMES, shapes, strict=True):
        numbers = torch.randn(shape, generator=generator)
        numbers *= 1.3 / shape[-1] ** 0.5 if len(shape) == 2 else 0.2
        numbers += 1 if name in ("attn_nw", "norm_w") else 0
        made.append(numbers.to(dtype).to(device))
    return made


def mask_of(batch, length, dtype, device="cpu"):
    """Returns a mask [batch, 1, 1, length] that hides the last third of each row but the first."""
    mask = torch.zeros(batch, 1, 1, length)
    mask[1:, ..., length - length // 3 :] = -10000
    return mask.to(dtype).to(device)


class Layer:
    """A layer by the module's functions. Arguments are passed as DeepSpeedTransformerFunction
    passes them: one tensor for two, where an option drops the other."""

    def __init__(self, module, suffix, options, weights, number=None):
        self.name = "fp32" if suffix == "bf16" else suffix
        self.module, self.options, self.weights = module, options, weights
        self.number = next(_numbers) if number is None else number
        made = self._function("create_transformer_layer")(
            self.number,
            8,
            options.hidden,
            options.heads,
            options.inner,
            options.attn_dropout,
            options.hidden_dropout,
            options.eps,
            options.seed,
            options.pre,
            False,
            options.attn_checkpoint,
            options.invertible,
            options.gelu_checkpoint,
            False,
        )
        assert made == 0

    def _function(self, stem):
        return getattr(self.module, f"{stem}_{self.name}")

    def forward(self, x, mask, training=True):
        """Returns the 17 tensors."""
        o = self.options
        flags = training, o.pre, o.attn_checkpoint, o.invertible, o.gelu_checkpoint
        return self._function("forward")(self.number, x, mask, *self.weights, *flags)

    def backward(self, grad, x, mask, kept):
        """Returns the 13 gradients."""
        o = self.options
        output, inp_norm, qkv, soft, dropped, context, total, ff1, before, after = kept[:10]
        both = o.pre and o.invertible
        return self._function("backward")(
            self.number,
            grad,
            inp_norm if both else output,
            inp_norm if o.pre or not o.invertible else x,
            qkv,
            soft,
            soft if o.attn_checkpoint else dropped,
            context,
            ff1 if o.invertible else total,
            ff1,
            after if o.gelu_checkpoint else before,
            after,
            *kept[10:17],
            inp_norm if both else x,
            mask,
            *self.weights,
        )

    def kept(self, results):
        """Returns the tensors of forward's results that DeepSpeed's Python keeps for backward."""
        o = self.options
        names = dict(enumerate(results))
        if o.pre and o.invertible:
            del names[0]
        if not o.pre and o.invertible:
            del names[1]
        if o.attn_checkpoint:
            del names[4]
        if o.invertible:
            del names[6]
        if o.gelu_checkpoint:
            del names[8]
        return list(names.values())


def bytes_of(tensors):
    """Returns how many bytes of memory the tensors hold, each storage once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def oracle(options, x, mask, weights, keeps, training=True):
    """Computes the layer in float64. keeps: the masks of the three dropouts, of the probabilities,
    the attention's output and the layer's output."""
    w = dict(zip(NAMES, weights, strict=True))
    keeps = keeps or (None, None, None)
    batch, length, hidden = x.shape
    normal, linear = torch.nn.functional.layer_norm, torch.nn.functional.linear

    def drop(value, keep, ratio):
        if not training or not ratio:
            return value
        scale = 0.0 if ratio == 1 else 1 / (1 - ratio)
        return value * keep.double().view(value.shape) * scale

    def norm(value, name):
        size = (hidden,)
        weight, bias = w[f"{name}w"], w[f"{name}b"]
        return normal(value, size, weight, bias, options.eps)

    first = norm(x, "norm_") if options.pre else x
    qkv = linear(first, w["attn_qkvw"], w["attn_qkvb"])
    by_head = (batch, length, 3, options.heads, hidden // options.heads)
    q, k, v = qkv.view(by_head).permute(2, 0, 3, 1, 4).unbind(0)
    scores = q @ k.transpose(2, 3) / by_head[-1] ** 0.5
    scores = scores if mask is None else scores + mask.double()
    soft = drop(scores.softmax(-1), keeps[0], options.attn_dropout)
    context = (soft @ v).transpose(1, 2).reshape(x.shape)
    total = drop(linear(context, w["attn_ow"], w["attn_ob"]), keeps[1], options.hidden_dropout) + x
    ff1 = norm(total, "attn_n")
    inner = torch.nn.functional.gelu(linear(ff1, w["inter_w"], w["inter_b"]), approximate="tanh")
    inner = drop(linear(inner, w["output_w"], w["output_b"]), keeps[2], options.hidden_dropout)
    return inner + total if options.pre else norm(inner + ff1, "norm_")


def exact(tensor):
    """Returns the tensor in float64 on the CPU, as a leaf."""
    return tensor.detach().cpu().double().requires_grad_()


def expected(options, x, mask, weights, grad, keeps):
    """Returns the output and the 13 gradients in float64."""
    leaves = [exact(tensor) for tensor in (x, *weights)]
    mask = mask if mask is None else mask.detach().cpu()
    keeps = [keep.detach().cpu() for keep in keeps]
    output = oracle(options, leaves[0], mask, leaves[1:], keeps)
    return output.detach(), torch.autograd.grad(output, leaves, grad.detach().cpu().double())


def error_of(found, wanted):
    """Returns the largest error, relative to the largest wanted element."""
    assert found.shape == wanted.shape
    worst = (found.detach().cpu().double() - wanted).abs().max().item()
    return worst / max(wanted.abs().max().item(), 1e-30)


def step(layer, x, mask, grad):
    """Runs a training step of the layer. Returns {name: error} of the output and the gradients, and
    forward's results."""
    results = layer.forward(x, mask)
    gradients = layer.backward(grad, x, mask, results)
    return errors(layer, x, mask, grad, results, gradients), results


def errors(layer, x, mask, grad, results, gradients):
    """Returns {name: error} of the output and the gradients of a step with these masks."""
    output, wanted = expected(layer.options, x, mask, layer.weights, grad, results[10:13])
    names = ["output", "input", *NAMES]
    found, wanted = [results[0], *gradients], [output, *wanted]
    assert all(tensor.dtype == x.dtype for tensor in found)
    return {name: error_of(*both) for name, *both in zip(names, found, wanted, strict=True)}
