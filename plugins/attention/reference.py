# SPDX-License-Identifier: Apache-2.0
"""attention, its gradients, both for sequences without padding too, and append_kv in PyTorch: the
plugin's fallback. Computed in float64 if q is float64, else in float32; results have q's dtype."""

import itertools

import torch


def attention(q, k, v, **options):
    """Returns softmax(scale q k^T + mask + bias + slopes * distance) v, for q [B, S, H, D] and k
    and v [B, L, KV, D]."""
    return attention_forward(q, k, v, **options)[0]


def attention_forward(q, k, v, *, dtype=None, **options):
    """Returns attention's result, and the logarithms of the sums of the rows' exponentials
    [B, H, S], float32 or of dtype."""
    scores, _, _, v_, bad = _scores(q, k, v, **options)
    lse = torch.logsumexp(scores, -1)
    result = (_weights(scores, lse) @ v_).transpose(1, 2)
    result = result.masked_fill(bad[:, None, None, None], float("nan"))
    lse = lse.masked_fill(bad[:, None, None], float("nan"))
    return result.to(q.dtype).contiguous(), lse.to(dtype or torch.float32)


def attention_backward(grad, q, k, v, result, lse=None, grad_lse=None, *, scale=None, **options):
    """Returns the gradients of attention's q, k and v."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    slopes, weights, grad_, q_, k_, bad = _score_gradients(
        grad, q, k, v, result, grad_lse, scale=scale, **options
    )
    slopes = slopes * scale
    found = slopes @ k_, slopes.mT @ q_, weights.mT @ grad_
    group = q.shape[2] // max(k.shape[2], 1)
    grads = []
    for x, one in zip((q, k, v), found, strict=True):
        if x is not q:  # heads that share keys
            one = one.unflatten(1, (k.shape[2], group)).sum(2) if q.shape[2] else one[:, :0]
        one = one.transpose(1, 2).reshape(x.shape) if one.numel() else torch.zeros_like(x)
        grads.append(one.masked_fill(bad[:, None, None, None], float("nan")).to(q.dtype))
    return tuple(one.contiguous() for one in grads)


def attention_dropout(q, k, v, p, *, generator=None, dtype=None, **options):
    """Returns attention_forward's results with dropout, and the seed of what was dropped. Drops by
    torch's random numbers instead of the plugin's."""
    device = generator.device if generator is not None else "cpu"
    seed = torch.randint(2**63 - 1, (1,), generator=generator, device=device).to(q.device)
    scores, _, _, v_, bad = _scores(q, k, v, **options)
    lse = torch.logsumexp(scores, -1)
    weights = _weights(scores, lse) * _kept(scores, p, seed)
    result = (weights @ v_).transpose(1, 2).masked_fill(bad[:, None, None, None], float("nan"))
    lse = lse.masked_fill(bad[:, None, None], float("nan"))
    seed = torch.cat([seed, torch.zeros_like(seed)])
    return result.to(q.dtype).contiguous(), lse.to(dtype or torch.float32), seed


def attention_dropout_backward(
    grad, q, k, v, result, lse, grad_lse, seed, p, *, scale=None, **options
):
    """Returns the gradients of attention_dropout's q, k and v."""
    return attention_backward(
        grad, q, k, v, result, lse, grad_lse, scale=scale, drop=(p, seed[:1]), **options
    )


def _kept(scores, p, seed):
    """Returns what the weights are multiplied by."""
    generator = torch.Generator().manual_seed(int(seed))
    numbers = torch.rand(scores.shape, generator=generator, dtype=torch.float64)
    return ((numbers >= p) * (0.0 if p == 1 else 1 / (1 - p))).to(scores)


def attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, *, dtype=None, **options):
    """Returns attention_forward's results of each sequence, one behind the other."""
    result = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    lse = q.new_full((q.shape[1], len(q)), -float("inf"), dtype=dtype or torch.float32)
    for at, of in _sequences(q, k, cu_seqlens_q, cu_seqlens_k):
        one, sums = attention_forward(q[at][None], k[of][None], v[of][None], dtype=dtype, **options)
        result[at], lse[:, at] = one[0], sums[0]
    return result, lse


def attention_varlen_backward(
    grad, q, k, v, result, lse, grad_lse, cu_seqlens_q, cu_seqlens_k, **options
):
    """Returns the gradients of attention_varlen's q, k and v."""
    grads = [torch.zeros(x.shape, dtype=q.dtype, device=q.device) for x in (q, k, v)]
    for at, of in _sequences(q, k, cu_seqlens_q, cu_seqlens_k):
        found = attention_backward(
            *(x[at][None] for x in (grad, q)),
            *(x[of][None] for x in (k, v)),
            result[at][None],
            None,
            None if grad_lse is None else grad_lse[None, :, at],
            **options,
        )
        for whole, part, one in zip(grads, (at, of, of), found, strict=True):
            whole[part] = one[0]
    return tuple(grads)


def _sequences(q, k, cu_seqlens_q, cu_seqlens_k):
    """Yields the slices of each sequence's queries and keys."""
    starts = [x.tolist() for x in (cu_seqlens_q, cu_seqlens_k)]
    for x, one in zip((q, k), starts, strict=True):
        if one[0] != 0 or one != sorted(one) or one[-1] > len(x):
            raise ValueError(f"found sequences at {one}, wanted rising numbers from 0 to {len(x)}")
    slices = ([slice(*pair) for pair in itertools.pairwise(one)] for one in starts)
    return zip(*slices, strict=True)


def attention_added_backward(
    grad, q, k, v, result, added, lse=None, grad_lse=None, *, scale=None, **options
):
    """Returns the gradient of a tensor that is added to the scores, of the shape of `added`."""
    slopes, *_, bad = _score_gradients(grad, q, k, v, result, grad_lse, scale=scale, **options)
    slopes = slopes.masked_fill(bad[:, None, None, None], float("nan"))
    summed = [dim for dim in range(4) if added.shape[dim] == 1]
    slopes = slopes.sum(summed, keepdim=True) if summed else slopes
    return slopes.to(added.dtype).contiguous()


def _score_gradients(grad, q, k, v, result, grad_lse, drop=None, **options):
    """Returns the gradients of the scores [B, H, S, L], the weights; the result's gradient, q and k
    as [B, H, tokens, D]; and which rows have a wrong length. drop: (p, seed) of dropout."""
    scores, q_, k_, v_, bad = _scores(q, k, v, **options)
    weights = _weights(scores, torch.logsumexp(scores, -1))
    grad_, result_ = (x.to(scores.dtype).transpose(1, 2) for x in (grad, result))
    reduce = (grad_ * result_).sum(-1, keepdim=True)
    if grad_lse is not None:
        reduce = reduce - grad_lse.to(scores.dtype)[..., None]
    kept = 1 if drop is None else _kept(scores, *drop)
    slopes = (weights * (kept * (grad_ @ v_.mT) - reduce)).masked_fill(weights == 0, 0)
    return slopes, weights * kept, grad_, q_, k_, bad


def _weights(scores, lse):
    """Returns the weights; 0 for scores of -inf, also where a row has no others."""
    return (scores - lse[..., None]).exp().masked_fill(scores == float("-inf"), 0)


def _scores(
    q,
    k,
    v,
    *,
    lengths=None,
    mask=None,
    bias=None,
    slopes=None,
    k_scale=None,
    v_scale=None,
    scale=None,
    causal=False,
    window=0,
):
    """Returns the scores [B, H, S, L], -inf where a query does not see a key; q, k and v as
    [B, H, tokens, D], where what nobody sees is 0; and which rows have a wrong length."""
    compute = torch.float64 if q.dtype == torch.float64 else torch.float32
    batch, queries, heads, size = q.shape
    keys = k.shape[1]
    if k_scale is not None:
        k, v = k.to(compute) * k_scale[..., None], v.to(compute) * v_scale[..., None]
    group = heads // max(k.shape[2], 1)
    q_, k_, v_ = (x.to(compute).transpose(1, 2) for x in (q, k, v))
    k_, v_ = (x.repeat_interleave(group, 1) for x in (k_, v_))
    if lengths is None:
        lengths = torch.full((batch,), keys, device=q.device)
    elif not lengths.is_cuda and ((lengths < 0) | (lengths > keys)).any():
        raise ValueError(f"found a length outside of 0 to {keys}")
    place = torch.arange(keys, device=q.device)
    position = lengths[:, None].long() - queries + torch.arange(queries, device=q.device)
    distance = place - position[:, None, :, None]  # [B, 1, S, L]
    seen = (place < lengths[:, None, None, None]) & torch.ones_like(distance, dtype=torch.bool)
    if causal:
        seen &= distance <= 0
    if window:
        seen &= distance > -window
    # Unread keys and values must have no effect, even if they are NaN.
    unread = ~seen.any(2)[:, 0]  # [B, L]
    k_, v_ = (x.masked_fill(unread[:, None, :, None], 0) for x in (k_, v_))
    scores = q_ @ k_.mT * (size**-0.5 if scale is None else scale)
    for added in (mask, bias):
        if added is not None:
            scores = scores + added.to(compute)
    if slopes is not None:
        scores = scores + slopes.to(compute)[:, None, None] * distance
    bad = (lengths < 0) | (lengths > keys)
    return scores.masked_fill(~seen, float("-inf")), q_, k_, v_, bad


def append_kv(
    q,
    k,
    v,
    k_cache,
    v_cache,
    start,
    cos=None,
    sin=None,
    *,
    k_scale=None,
    v_scale=None,
    interleaved=False,
):
    """Writes k and v into the caches, from place start[b] on; returns q, rotated like k."""
    tokens, places = q.shape[1], k_cache.shape[1]
    if cos is not None:
        places = min(places, len(cos))
    at = start[:, None].long() + torch.arange(tokens, device=q.device)  # [B, S]
    good = (at >= 0) & (at < places) & (start >= 0)[:, None]
    if not start.is_cuda and not good.all():
        raise ValueError(f"found a place outside of 0 to {places - 1}")
    rows = at.clamp(0, max(places - 1, 0))
    if cos is not None:
        q, k = (_rotate(x, cos, sin, rows, interleaved) for x in (q, k))
    for new, cache, scale in ((k, k_cache, k_scale), (v, v_cache, v_scale)):
        if scale is not None:
            new, by = _quantize(new, cache.dtype)
            _put(scale, by, at, good)
        _put(cache, new.to(cache.dtype), at, good)
    return q.masked_fill(~good[..., None, None], float("nan")).contiguous()


def _put(cache, new, at, good):
    batch = torch.arange(len(at), device=at.device)[:, None].expand_as(at)
    cache[batch[good], at[good]] = new[good]


def _quantize(x, dtype):
    """Returns the elements, scaled but not yet rounded to dtype, and the scales [B, S, KV]."""
    largest = 127.0 if dtype == torch.int8 else 448.0
    x = x.float()
    most = x.abs().amax(-1)
    empty = most < 1e-30
    factor = torch.where(empty, 0.0, largest / most)
    y = (x * factor[..., None]).clamp(-largest, largest)
    scale = torch.where(empty, 0.0, most / largest)
    return (y.round() if dtype == torch.int8 else y), scale


def _rotate(x, cos, sin, rows, interleaved):
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    cos, sin = (table.to(compute)[rows].unsqueeze(-2) for table in (cos, sin))
    pairs = cos.shape[-1]
    rotated, rest = x[..., : 2 * pairs].to(compute), x[..., 2 * pairs :]
    if interleaved:
        a, b = rotated[..., ::2], rotated[..., 1::2]
    else:
        a, b = rotated[..., :pairs], rotated[..., pairs:]
    a, b = a * cos - b * sin, b * cos + a * sin
    both = torch.stack([a, b], -1).flatten(-2) if interleaved else torch.cat([a, b], -1)
    return torch.cat([both.to(x.dtype), rest], -1)
