# SPDX-License-Identifier: Apache-2.0
"""Calls of DeepSpeed's inference functions that multiply matrices, as inference_calls.py has them.

Weights are [out, in], with transposed_mode. Attention keeps keys and values of two layers, and only
the first layer is called: the token counter does not advance, so each call computes the same
position."""

import functools

import torch
from inference_bounds import attention, close
from inference_bounds import product as summed
from inference_calls import (
    CACHED,
    EPS,
    NONE,
    RISKY,
    Call,
    gelu,
    layer_norm,
    rms_norm,
    rotary,
)
from inference_calls import (
    CALLS as OTHERS,
)

LAYERS = 2
GROUPS = 16  # number of scales of an int8 weight
EXPERTS = 8


def weight(numbers, outputs, inputs):
    return numbers(outputs, inputs, scale=inputs**-0.5)


def gated_width(hidden):
    """Returns the inner width of a gated MLP: two thirds of four times hidden, as Llama rounds
    it."""
    return -(-hidden * 8 // 3 // 256) * 256


def product(x, w):
    return x.double() @ w.double().t()


def vector_matmul(numbers, shape):
    x, w = numbers(*shape.rows), weight(numbers, shape.hidden, shape.hidden)
    arguments = (x, w, False, NONE, False, True)
    bounds = (summed(2, shape.hidden),)
    return Call(numbers.named("vector_matmul"), arguments, lambda: [product(x, w)], bounds)


def linear_layer(numbers, shape, by_head=False):
    x, w = numbers(*shape.rows), weight(numbers, 3 * shape.hidden, shape.hidden)
    bias = numbers(3 * shape.hidden)

    def wanted():
        out = product(x, w) + bias.double()
        if not by_head:
            return [out]
        return [out.unflatten(-1, (3, shape.heads, shape.size)).permute(2, 0, 3, 1, 4)]

    arguments = (x, w, bias, True, by_head, shape.heads, True, 10000.0)
    bounds = (summed(2, shape.hidden),)
    return Call(numbers.named("linear_layer"), arguments, wanted, bounds)


def qkv_gemm(numbers, shape):
    x, w = numbers(*shape.rows), weight(numbers, 3 * shape.hidden, shape.hidden)
    bias, gamma, beta = numbers(3 * shape.hidden), numbers(shape.hidden), numbers(shape.hidden)

    def wanted():
        norm = layer_norm(x.double(), gamma, beta)
        return [product(numbers.rounded(norm), w) + bias.double(), norm]

    arguments = (x, w, NONE, bias, gamma, beta, EPS, True, False, True)
    bounds = (summed(4, shape.hidden), close(2))
    return Call(numbers.named("qkv_gemm"), arguments, wanted, bounds)


def rms_qkv_gemm(numbers, shape):
    x, w = numbers(*shape.rows), weight(numbers, 3 * shape.hidden, shape.hidden)
    gamma = numbers(shape.hidden)

    def wanted():
        norm = rms_norm(x.double(), gamma)
        return [product(numbers.rounded(norm), w), norm]

    arguments, bounds = (x, w, NONE, gamma, EPS, False, True), (summed(4, shape.hidden), close(2))
    return Call(numbers.named("rms_qkv_gemm"), arguments, wanted, bounds)


def mlp_gemm(numbers, shape):
    """Calls the MLP after attention, with GELU and an inner width of four times hidden."""
    h = shape.hidden
    x, residual = numbers(*shape.rows), numbers(*shape.rows)
    w, w_out = weight(numbers, 4 * h, h), weight(numbers, h, 4 * h)
    bias, (input_bias, gamma, beta) = numbers(4 * h), (numbers(h) for _ in range(3))

    def wanted():
        total = x.double() + residual.double() + input_bias.double()
        norm = layer_norm(total, gamma, beta)
        inner = gelu(product(numbers.rounded(norm), w) + bias.double())
        return [product(numbers.rounded(inner), w_out), norm]

    head = (x, residual, input_bias, w, w_out, bias, gamma, beta, EPS, True, True)
    arguments, bounds = (*head, NONE, NONE, False, 1, True), (summed(6, 4 * h), summed(2, 1))
    return Call(numbers.named("mlp_gemm"), arguments, wanted, bounds)


def rms_mlp_gemm(numbers, shape):
    """Calls a Llama's MLP. DeepSpeed's writes the sum into residual, which is copied for both."""
    h, inner = shape.hidden, gated_width(shape.hidden)
    x, residual, gamma = numbers(*shape.rows), numbers(*shape.rows), numbers(h)
    w, w_out = weight(numbers, 2 * inner, h), weight(numbers, h, inner)

    def wanted():
        total = x.double() + residual.double()
        norm = rms_norm(numbers.rounded(total), gamma)
        hidden, gate = product(numbers.rounded(norm), w).chunk(2, -1)
        between = hidden * torch.nn.functional.silu(gate)
        return [product(numbers.rounded(between), w_out), total]

    arguments = (x, residual, w, w_out, gamma, EPS, NONE, NONE, False, 4, True)
    bounds = (summed(6, inner), close())
    return Call(numbers.named("rms_mlp_gemm"), arguments, wanted, bounds, changed=(1,))


def fused_gemm_gelu(numbers, shape):
    h = shape.hidden
    x, bias = numbers(*shape.rows), numbers(4 * h)
    w, w_out = weight(numbers, 4 * h, h), weight(numbers, h, 4 * h)

    def wanted():
        inner = gelu(product(x, w) + bias.double())
        return [product(numbers.rounded(inner), w_out)]

    arguments = (x, w, NONE, bias, w_out, NONE, False, True)
    return Call(numbers.named("fused_gemm_gelu"), arguments, wanted, (summed(4, 4 * h),))


def einsum_sec_sm_ecm(numbers, shape):
    """Sends all tokens to experts that have places for the average number of tokens, or for
    four."""
    tokens = shape.batch * shape.tokens
    places = max(4, tokens // EXPERTS)
    q, w = numbers(tokens, EXPERTS, places, scale=tokens**-0.5), numbers(tokens, shape.hidden)
    return Call(
        numbers.named("einsum_sec_sm_ecm"),
        (q, w),
        lambda: [torch.einsum("sec,sm->ecm", q.double(), w.double())],
        (summed(2, tokens),),
    )


def _quantized(numbers, outputs, inputs):
    """Returns an int8 [outputs, inputs] weight, its float32 [GROUPS, 1] scales for equal numbers of
    rows, and the weight in float64. It is not larger than weight()'s: DeepSpeed's absolute
    tolerance is for results near 1. With scales three times as large, one of 8 million results
    exceeded the tolerance, because both modules round weights to float16 in products of many rows.
    """
    q = (numbers(outputs, inputs).float() * 40).clamp(-127, 127).to(torch.int8)
    scale = (numbers(GROUPS, 1).float().abs().clamp(max=1) + 1) / 80 * inputs**-0.5
    whole = q.double() * scale.double().repeat_interleave(outputs // GROUPS, 0)
    return q, scale, whole


def vector_matmul_int8(numbers, shape):
    x = numbers(*shape.rows)
    q, scale, whole = _quantized(numbers, shape.hidden, shape.hidden)
    arguments = (x, q, False, scale, True, True)
    bounds = (summed(4, shape.hidden),)
    function = numbers.named("vector_matmul")
    return Call(function, arguments, lambda: [x.double() @ whole.t()], bounds)


def dequantize(numbers, shape):
    """A weight has the same size for all token counts, so there is only one call."""
    if (shape.batch, shape.tokens) != (1, 1):
        return None
    q, scale, whole = _quantized(numbers, 4 * shape.hidden, shape.hidden)
    return Call(numbers.named("dequantize"), (q, scale, GROUPS), lambda: [whole])


def _by_head(qkv, shape):
    """Returns q, k and v in float64, [batch, heads, tokens, size]."""
    return qkv.double().unflatten(-1, (3, shape.heads, shape.size)).permute(2, 0, 3, 1, 4)


def _attention(q, k, v, scale, causal=True):
    """Computes attention in float64; the last query belongs to the last key's token."""
    scores = q @ k.mT * scale
    if causal and q.shape[2] > 1:
        later = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device)
        scores.masked_fill_(later.triu(1 + k.shape[2] - q.shape[2]), -torch.inf)
    return torch.softmax(scores, -1) @ v


def _context_arguments(qkv, shape, rotated, layer):
    """Returns the arguments of softmax_context: causal, without a mask, for one of LAYERS
    layers."""
    turn = (shape.size, True, False) if rotated else (0, False, False)
    rest = (shape.heads, -1, shape.size**-0.25, True, False, 1, False, layer, LAYERS, NONE)
    return (qkv, NONE, *turn, *rest, 10000.0, qkv.shape[1] > 1, None, None)


def softmax_context(numbers, shape, rotated=False):
    """Calls softmax_context for a prompt, or for one token after CACHED ones."""
    function = numbers.named("softmax_context")
    qkv = numbers(*shape.rows[:2], 3 * shape.hidden)
    prompt = numbers(shape.batch, CACHED, 3 * shape.hidden) if shape.tokens == 1 else None

    def once(module):
        if prompt is not None:
            for layer in range(LAYERS):  # the last layer's call advances the counter
                getattr(module, function)(*_context_arguments(prompt, shape, rotated, layer))

    def wanted():
        whole = qkv if prompt is None else torch.cat([prompt, qkv], 1)
        q, k, v = _by_head(whole, shape)
        if rotated:
            q, k = numbers.rounded(rotary(q)), numbers.rounded(rotary(k))
        out = _attention(q[:, :, -shape.tokens :], k, v, shape.size**-0.5)
        return [out.transpose(1, 2).flatten(2), k, v]

    values = _by_head(qkv if prompt is None else torch.cat([prompt, qkv], 1), shape)[2]
    bounds = (attention(values), close(2), close(2))
    return Call(function, _context_arguments(qkv, shape, rotated, 0), wanted, bounds, once=once)


def softmax_context_int8(numbers, shape):
    """Attends over the caller's keys and values; they are float16 in spite of the name."""
    if numbers.suffix != "fp16":
        return None
    q = numbers(shape.batch, shape.heads, shape.tokens, shape.size)
    k, v = (numbers(shape.batch, shape.heads, shape.keys, shape.size) for _ in range(2))
    # Memory is [batch, heads, size, keys], passed in the shape of the values.
    key = k.mT.contiguous()
    scale, over_keys = shape.size**-0.5, (shape.batch, shape.keys, shape.hidden)
    arguments = (
        *(q.view(shape.rows), key.view(over_keys), NONE, NONE, v.view(over_keys), NONE),
        *(shape.heads, scale, True, shape.tokens > 1, False, 1, True),
    )

    def wanted():
        return [_attention(q.double(), k.double(), v.double(), scale), None, None]

    return Call("softmax_context_int8", arguments, wanted, (attention(v), None, None))


def repeat_kv_cache(numbers, shape):
    """Repeats one row's prompt for all rows; each call comes after a prompt, which is not timed."""
    if shape.batch == 1 or shape.tokens == 1:
        return None
    qkv = numbers(1, shape.tokens, 3 * shape.hidden)
    context = numbers.named("softmax_context")

    def before(module):
        for layer in range(LAYERS):
            getattr(module, context)(*_context_arguments(qkv, shape, False, layer))

    def wanted():
        _, k, v = (t.expand(shape.batch, -1, -1, -1) for t in _by_head(qkv, shape))
        return [k, v] * LAYERS

    bounds = (close(),) * 2 * LAYERS
    return Call(numbers.named("repeat_kv_cache"), (1, shape.batch), wanted, bounds, before=before)


CALLS = {
    **OTHERS,
    "vector_matmul": vector_matmul,
    "linear_layer": linear_layer,
    "linear_layer by head": functools.partial(linear_layer, by_head=True),
    "qkv_gemm": qkv_gemm,
    "rms_qkv_gemm": rms_qkv_gemm,
    "mlp_gemm": mlp_gemm,
    "rms_mlp_gemm": rms_mlp_gemm,
    "fused_gemm_gelu": fused_gemm_gelu,
    "einsum_sec_sm_ecm": einsum_sec_sm_ecm,
    "softmax_context": softmax_context,
    "softmax_context rotary": functools.partial(softmax_context, rotated=True),
    "softmax_context_int8": softmax_context_int8,
    "repeat_kv_cache": repeat_kv_cache,
    **RISKY,
    "vector_matmul int8": vector_matmul_int8,
    "dequantize": dequantize,
}
