# SPDX-License-Identifier: Apache-2.0
"""Compares the layers of DeepSpeed 0.7.7's inference with float64; by_hand_0_7_7.py runs this.

Each function here makes layers with random weights, lets DeepSpeed's Python compute a prompt and
tokens after it, or one input, and returns the largest error, relative to the largest element."""

import contextlib
import io
import math
import types

import torch
from inference_cases import DTYPES, exact, gelu, layer_norm

HIDDEN, HEADS, LAYERS, EPS, BATCH = 128, 4, 3, 1e-5, 2
PROMPT, TOKENS = 7, 5
HIDE = -10000.0

#: the options that DeepSpeed's injection sets for each model's layer
MODELS = {
    "GPT-2": {},
    "GPT-2, int8 weights": {"q_int8": True},
    "OPT": {"mlp_act_func_type": "ReLU"},
    "GPT-J": {"rotary_dim": 16, "rotate_every_two": True, "mlp_after_attn": False},
    "GPT-NeoX": {
        "rotary_dim": 8,
        "rotate_half": True,
        "rotate_every_two": False,
        "mlp_after_attn": False,
    },
    "BLOOM": {"bigscience_bloom": True},
    "BERT": {"pre_layer_norm": False, "triangular_masking": False},
}


class Random:
    """random(shape, scale) returns normally distributed numbers of one dtype on one device."""

    def __init__(self, suffix, device):
        self.generator = torch.Generator().manual_seed(7)
        self.suffix, self.dtype, self.device = suffix, DTYPES[suffix], device

    def __call__(self, *shape, scale=1.0):
        numbers = torch.randn(shape, generator=self.generator) * scale
        return numbers.to(self.dtype).to(self.device)

    def fill(self, module, q_int8=False):
        """Sets a layer's parameters to random numbers; returns them as a dict by name, in float64.

        Weights get the `scale` attribute that DeepSpeed's injection gives them, and with q_int8 are
        int8."""
        from deepspeed.module_inject import GroupQuantizer

        quantizer, numbers = GroupQuantizer(q_int8=q_int8), {}
        for name, parameter in list(module.named_parameters()):
            if name.startswith("moe_gate"):
                continue
            owner, _, last = name.rpartition(".")
            shape = parameter.shape
            if len(shape) < 2:
                made = self(*shape, scale=0.1) + (last in ("norm_w", "attn_nw"))
                kept, wanted = torch.nn.Parameter(made, requires_grad=False), made
            elif q_int8:  # [out, in], with a scale for each row
                kept = quantizer.quantize(self(*reversed(shape), scale=shape[0] ** -0.5))
                wanted = (exact(kept) * exact(kept.scale.reshape(-1)[: shape[1], None])).t()
            else:
                wanted = self(*shape, scale=shape[0] ** -0.5)
                kept = quantizer.quantize(wanted)
            setattr(module.get_submodule(owner), last, kept)
            numbers[name] = exact(wanted)
        return numbers


def worst(found, wanted):
    return ((exact(found) - wanted).abs().max() / wanted.abs().max()).item()


def _rotated(x, dimensions, halves):
    """Rotates the first `dimensions` of each head. x: [batch, heads, tokens, size], float64."""
    angles = torch.arange(x.shape[2])[:, None] * 10000.0 ** (
        -torch.arange(0, dimensions, 2, dtype=torch.float64) / dimensions
    )
    sin, cos = angles.sin(), angles.cos()
    part, rest = x[..., :dimensions], x[..., dimensions:]
    if halves:
        a, b = part.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)
    a, b = part[..., ::2], part[..., 1::2]
    turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return torch.cat([turned, rest], -1)


def _attention(x, w, options, mask):
    """Computes attention without its output bias, which is added with the residual."""
    qkv = x @ w["attention.attn_qkvw"]
    if "attention.attn_qkvb" in w:
        qkv = qkv + w["attention.attn_qkvb"]
    batch, length, _ = x.shape
    parts = qkv.chunk(3, -1)
    if options.get("bigscience_bloom"):  # query, key and value of each head are adjacent
        parts = qkv.view(batch, length, HEADS, 3, -1).unbind(3)
    q, k, v = (t.reshape(batch, length, HEADS, -1).transpose(1, 2) for t in parts)
    if dimensions := options.get("rotary_dim"):
        q, k = (_rotated(t, dimensions, options.get("rotate_half")) for t in (q, k))
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + mask
    if options.get("triangular_masking", True):
        later = ~torch.ones(length, length).tril().bool()
        scores = scores.masked_fill(later, -math.inf)
    mixed = scores.softmax(-1) @ v
    return mixed.transpose(1, 2).reshape(batch, length, -1) @ w["attention.attn_ow"]


def _mlp(x, w, name, activation=gelu):
    inner = activation(x @ w[name + "inter_w"] + w[name + "inter_b"])
    return inner @ w[name + "output_w"] + w[name + "output_b"]


def _oracle(w, x, options, mask):
    """Computes a layer with the weights w over a whole sequence x, in float64. mask: added to the
    scores."""
    activation = torch.relu if options.get("mlp_act_func_type") == "ReLU" else gelu

    def first_norm(x):
        return layer_norm(x, w["norm_w"], w["norm_b"], EPS)

    def second_norm(x):
        return layer_norm(x, w["mlp.attn_nw"], w["mlp.attn_nb"], EPS)

    if not options.get("pre_layer_norm", True):
        x = second_norm(x + _attention(x, w, options, mask) + w["attention.attn_ob"])
        return first_norm(x + _mlp(x, w, "mlp.", activation))
    normed = first_norm(x)
    sum_ = x + _attention(normed, w, options, mask) + w.get("attention.attn_ob", 0)
    if "mlp.attn_nw" not in w:  # GPT-J has one norm for both branches
        return sum_ + _mlp(normed, w, "mlp.", activation)
    into = sum_ if options.get("mlp_after_attn", True) else x
    return sum_ + _mlp(second_norm(into), w, "mlp.", activation)


def _config(suffix, **options):
    from deepspeed.ops.transformer.inference.config import DeepSpeedInferenceConfig
    from deepspeed.utils.types import ActivationFuncType

    if named := options.get("mlp_act_func_type"):
        options["mlp_act_func_type"] = getattr(ActivationFuncType, named)
    return DeepSpeedInferenceConfig(
        hidden_size=HIDDEN,
        heads=HEADS,
        num_hidden_layers=LAYERS,
        layer_norm_eps=EPS,
        fp16=suffix == "fp16",
        max_out_tokens=64,
        **options,
    )


def _model(name, suffix, random):
    """Returns layers as DeepSpeed's injection makes them, and the weights of each, in float64."""
    from deepspeed.model_implementations.transformers.ds_transformer import (
        DeepSpeedTransformerInference,
    )
    from deepspeed.ops.transformer.inference.ds_attention import DeepSpeedSelfAttention

    # The classes count their layers.
    DeepSpeedTransformerInference.layer_id = DeepSpeedSelfAttention.num_layers = 0
    layers, weights = [], []
    for _ in range(LAYERS):
        layer = DeepSpeedTransformerInference(_config(suffix, **MODELS[name])).eval()
        if name == "GPT-J":
            layer.attention.attn_qkvb = layer.attention.attn_ob = None
            layer.mlp.attn_nw = layer.mlp.attn_nb = None
        layers.append(layer)
        weights.append(random.fill(layer, MODELS[name].get("q_int8", False)))
    return layers, weights


def decoder(name, suffix, device, hidden=0):
    """Runs a prompt and tokens after it. hidden: how many of the second row's first tokens a mask
    hides."""
    random = Random(suffix, device)
    layers, weights = _model(name, suffix, random)
    sequence = random(BATCH, PROMPT + TOKENS, HIDDEN)
    mask = torch.zeros(BATCH, 1, 1, PROMPT + TOKENS)
    mask[1, ..., :hidden] = HIDE
    wanted, found, begin = exact(sequence), [], 0
    for w in weights:
        wanted = _oracle(w, wanted, MODELS[name], mask.double())
    for step in (PROMPT, *[1] * TOKENS):
        x, end = sequence[:, begin : begin + step].clone(), begin + step
        given = mask[..., :end].to(random.dtype).to(device) if hidden else None
        for layer in layers:
            x = layer(x, input_mask=given)[0]
        found.append(x)
        begin = end
    found = torch.cat(found, 1)
    return worst(found[:, hidden:], wanted[:, hidden:])


def bloom(suffix, device):
    """Does what decoder() does, with alibi, and with keys and values that the caller keeps; float16
    only."""
    random = Random(suffix, device)
    layers, weights = _model("BLOOM", suffix, random)
    sequence = random(BATCH, PROMPT + TOKENS, HIDDEN)
    slopes = 4.0 ** -torch.arange(1, HEADS + 1)
    alibi = (slopes[:, None, None] * torch.arange(PROMPT + TOKENS)).repeat(BATCH, 1, 1)
    wanted, found, begin, past = exact(sequence), [], 0, [None] * LAYERS
    for w in weights:
        wanted = _oracle(w, wanted, MODELS["BLOOM"], exact(alibi).view(BATCH, HEADS, 1, -1))
    for step in (PROMPT, *[1] * TOKENS):
        x, end = sequence[:, begin : begin + step].clone(), begin + step
        given = alibi[..., :end].to(random.dtype).to(device)
        for i, layer in enumerate(layers):
            x, past[i] = layer(x, layer_past=past[i], get_present=True, alibi=given)
        found.append(x)
        begin = end
    return worst(torch.cat(found, 1), wanted)


def encoder(name, suffix, device):
    """Runs one input with padding, which an additive mask hides: with a mask of ones and zeros
    DeepSpeed's attention looks up the attribute "dtype", and fails."""
    random = Random(suffix, device)
    layers, weights = _model(name, suffix, random)
    x = random(BATCH, PROMPT + TOKENS, HIDDEN)
    used = torch.ones(BATCH, PROMPT + TOKENS)
    used[1, PROMPT:] = 0
    added = ((1 - used) * HIDE)[:, None, None, :]
    wanted = exact(x)
    for w in weights:
        wanted = _oracle(w, wanted, MODELS[name], added.double())
    given = added.to(random.dtype).to(device)
    for layer in layers:
        x = layer(x, input_mask=given)[0]
    return worst(x[used.bool()], wanted[used.bool()])


def mixture_of_experts(suffix, device, residual=False, q_int8=False):
    """Runs DeepSpeedMoEInference with 4 experts, with one expert for each token. Its input is not
    added to the result as a residual.

    residual: an MLP in addition to the experts. It has two coefficients for each token, but the
    kernel reads one for each column and part; the counts agree if there are HIDDEN tokens, as here.
    q_int8: attention and experts with int8 weights."""
    from deepspeed.ops.transformer.inference import moe_inference
    from deepspeed.ops.transformer.inference.ds_attention import DeepSpeedSelfAttention

    from opdock.compat.deepspeed import inference

    random = Random(suffix, device)
    torch.manual_seed(7)  # seeds the gate
    moe_inference.DeepSpeedMoEInference.layer_id = DeepSpeedSelfAttention.num_layers = 0
    config = moe_inference.DeepSpeedMoEInferenceConfig(
        hidden_size=HIDDEN,
        heads=HEADS,
        num_hidden_layers=1,
        layer_norm_eps=EPS,
        fp16=suffix == "fp16",
        q_int8=q_int8,
        moe_experts=4,
        global_experts=4,
        eval_capacity_factor=4.0,
        mlp_type="residual" if residual else "standard",
    )
    config.rotary_dim = -1  # its constructor passes return_tuple in place of rotary_dim
    # Scales of all weights, with one group each.
    scales = [torch.full((1, 1), 1e-3, device=device)] * 4
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its configuration
        layer = moe_inference.DeepSpeedMoEInference(config, quantize_scales=scales)
    layer = layer.to(device).eval()
    layer.moe_gate.wg.weight.requires_grad_(False)
    w = random.fill(layer)
    if q_int8:
        attention = random.fill(layer.attention, q_int8)
        w |= {f"attention.{name}": numbers for name, numbers in attention.items()}
        for i, expert in enumerate(layer.mlp):
            for name in ("inter_w", "output_w"):
                q = (getattr(expert, name) * 1e3).clamp(-127, 127).to(torch.int8)
                setattr(expert, name, torch.nn.Parameter(q, requires_grad=False))
                w[f"mlp.{i}.{name}"] = exact(q) * exact(scales[0])
    layer._alltoall = lambda tensor: tensor  # there is only this process, and no process group
    gates, theirs = [], layer.moe_gate_einsum

    def moe_gate_einsum(x):
        made = theirs(x)
        gates.append(exact(made[1]).sum(-1))  # [tokens, experts]
        return made

    layer.moe_gate_einsum = moe_gate_einsum
    tokens = HIDDEN // BATCH
    x = random(BATCH, tokens, HIDDEN)
    # The layer allocates no workspace; DeepSpeed's product functions do so.
    inference.allocate_workspace_fp32(HIDDEN, HEADS, tokens, BATCH, 1, 1, False, 0, tokens)
    (found,) = layer(x)
    normed = layer_norm(exact(x), w["norm_w"], w["norm_b"], EPS)
    middle = _attention(normed, w, {}, torch.zeros(1)) + w["attention.attn_ob"]
    normed = layer_norm(middle, w["attn_nw"], w["attn_nb"], EPS)
    gate = gates[0].view(BATCH, tokens, 1, 4)
    assert gate.count_nonzero().item() == BATCH * tokens
    mixed = (torch.stack([_mlp(normed, w, f"mlp.{i}.") for i in range(4)], -1) * gate).sum(-1)
    if residual:
        first, second = (normed @ w["res_coef"]).softmax(-1).flatten().chunk(2)
        mixed = first * _mlp(normed, w, "res_mlp.") + second * mixed
    return worst(found, middle + mixed)


def _flash_attention(query, key, value, scale, _):
    """Replaces DeepSpeed's Triton kernel, which is no function of the module."""
    scores = query.float() @ key.float().transpose(-1, -2) * scale
    return (scores.softmax(-1) @ value.float()).to(query.dtype)


def _diffusers_attention(suffix, random):
    from deepspeed.ops.transformer.inference import diffusers_attention

    diffusers_attention.triton_flash_attn = lambda: _flash_attention
    layer = diffusers_attention.DeepSpeedDiffusersAttention(_config(suffix)).to(random.device)
    return layer, random.fill(layer)


def _diffusers_oracle(w, x, context, bias=True):
    if context is None:
        q, k, v = (x @ w["attn_qkvw"] + w["attn_qkvb"]).chunk(3, -1)
    else:
        q, k, v = x @ w["attn_qw"], context @ w["attn_kw"], context @ w["attn_vw"]
    q, k, v = (t.view(*t.shape[:2], HEADS, -1).transpose(1, 2) for t in (q, k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
    mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
    return mixed @ w["attn_ow"] + (w["attn_ob"] if bias else 0)


def diffusers_attention(suffix, device, across=False):
    """Runs DeepSpeedDiffusersAttention. across: attends to other tokens, which DeepSpeed does in
    float16 only."""
    random = Random(suffix, device)
    layer, w = _diffusers_attention(suffix, random)
    x, context = random(BATCH, 128, HIDDEN), random(BATCH, 5, HIDDEN) if across else None
    found = layer(x, context)
    return worst(found, _diffusers_oracle(w, exact(x), exact(context) if across else None))


def diffusers_block(suffix, device):
    """Runs DeepSpeedDiffusersTransformerBlock: two of these attentions, and a gated MLP."""
    from deepspeed.ops.transformer.inference import bias_add, diffusers_transformer_block
    from deepspeed.ops.transformer.inference.diffusers_2d_transformer import (
        Diffusers2DTransformerConfig,
    )

    # The op spatial_inference is DeepSpeed's own.
    spatial = types.SimpleNamespace(nhwc_bias_add_add=lambda x, bias, other: x + bias + other)
    bias_add.spatial_cuda_module = diffusers_transformer_block.spatial_cuda_module = spatial
    random = Random(suffix, device)

    def linear(rows, columns):
        made = torch.nn.Linear(columns, rows).to(device, random.dtype)
        made.weight.data, made.bias.data = random(rows, columns, scale=columns**-0.5), random(rows)
        return made

    (one, w1), (two, w2) = (_diffusers_attention(suffix, random) for _ in range(2))
    norms = [torch.nn.LayerNorm(HIDDEN, EPS).to(device, random.dtype) for _ in range(3)]
    for norm in norms:
        norm.weight.data += random(HIDDEN, scale=0.1)
        norm.bias.data += random(HIDDEN, scale=0.1)
    first, second = linear(8 * HIDDEN, HIDDEN), linear(HIDDEN, 4 * HIDDEN)
    block = types.SimpleNamespace(
        ff=types.SimpleNamespace(net=[types.SimpleNamespace(proj=first), None, second]),
        attn1=one,
        attn2=two,
        **{f"norm{i + 1}": norm for i, norm in enumerate(norms)},
    )
    kind = diffusers_transformer_block.DeepSpeedDiffusersTransformerBlock
    layer = kind(block, Diffusers2DTransformerConfig())
    x, context = random(BATCH, 128, HIDDEN), random(BATCH, 5, HIDDEN)
    with torch.no_grad():
        found = layer(x.clone(), context)

    def normed(x, i):
        return layer_norm(x, exact(norms[i].weight), exact(norms[i].bias), EPS)

    y = exact(x)
    y = y + _diffusers_oracle(w1, normed(y, 0), None)
    y = y + _diffusers_oracle(w2, normed(y, 1), exact(context))
    inner = normed(y, 2) @ exact(first.weight).t() + exact(first.bias)
    values, gate = inner.chunk(2, -1)
    inner = values * gelu(gate, "none")
    return worst(found, y + inner @ exact(second.weight).t() + exact(second.bias))


def cases(device):
    """Yields (name, suffix, a function that returns the error)."""
    for suffix in ("fp32", "fp16"):
        for name in ("GPT-2", "OPT", "GPT-J", "GPT-NeoX"):
            yield f"{name}, {LAYERS} layers", suffix, (decoder, name, suffix, device)
        yield "GPT-2, padding hidden", suffix, (decoder, "GPT-2", suffix, device, 2)
        yield "BERT, padding hidden", suffix, (encoder, "BERT", suffix, device)
        yield "MoE, 4 experts", suffix, (mixture_of_experts, suffix, device)
        case = (mixture_of_experts, suffix, device, True)
        yield "MoE, 4 experts and an MLP", suffix, case
        yield "diffusers: attention", suffix, (diffusers_attention, suffix, device)
    yield f"BLOOM, {LAYERS} layers", "fp16", (bloom, "fp16", device)
    yield "GPT-2, int8 weights", "fp16", (decoder, "GPT-2, int8 weights", "fp16", device)
    case = (mixture_of_experts, "fp16", device, False, True)
    yield "MoE, int8 weights", "fp16", case
    yield "diffusers: attention to others", "fp16", (diffusers_attention, "fp16", device, True)
    yield "diffusers: a block", "fp16", (diffusers_block, "fp16", device)
