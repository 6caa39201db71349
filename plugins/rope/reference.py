# SPDX-License-Identifier: Apache-2.0
"""rope in PyTorch: the oracle of the plugin's tests. Computed in float64 if q is float64, else in
float32; results have q's dtype."""

import torch


def rope(q, k, cos, sin, positions=None, *, interleaved=False):
    """Returns q and k, [..., heads, D], with the first elements of each head rotated by the angles
    in row positions[...] of cos and sin, [length, pairs]. positions None: a token's index in its
    sequence."""
    return tuple(_rotate(x, cos, sin, positions, interleaved) for x in (q, k))


def rope_backward(grad_q, grad_k, cos, sin, positions=None, *, interleaved=False):
    """Returns the gradients of q and k: the rotation by the negative angles."""
    return rope(grad_q, grad_k, cos, -sin, positions, interleaved=interleaved)


def _rotate(x, cos, sin, positions, interleaved):
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    if positions is None:
        positions = torch.arange(x.shape[-3], device=x.device)
    elif not positions.is_cuda and (positions < 0).any():
        raise IndexError("found a position below 0, wanted a row of cos and sin")
    # [tokens, 1, pairs]: the angles are the same for all heads.
    cos, sin = (table.to(compute)[positions.long()].unsqueeze(-2) for table in (cos, sin))
    pairs = cos.shape[-1]
    rotated, rest = x[..., : 2 * pairs].to(compute), x[..., 2 * pairs :]
    if interleaved:
        a, b = rotated[..., ::2], rotated[..., 1::2]
    else:
        a, b = rotated[..., :pairs], rotated[..., pairs:]
    a, b = a * cos - b * sin, b * cos + a * sin
    both = torch.stack([a, b], -1).flatten(-2) if interleaved else torch.cat([a, b], -1)
    return torch.cat([both.to(x.dtype), rest], -1)
