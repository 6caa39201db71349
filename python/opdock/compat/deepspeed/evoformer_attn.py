# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module evoformer_attn, attention with two biases over proteins'
sequences and pairs, by the plugin attention, for GPUs and the CPU."""

import torch

from opdock import ops


@torch.no_grad()
def attention(q, k, v, bias1, bias2, o, lse):
    """Computes softmax(q kᵀ / √D + bias1 + bias2) v for each row of each batch, and the logarithms
    of the sums of the exponentials; writes them to o and lse.

    q, k, v, o: [B, N, L, heads, D], any leading dimensions if there is no bias2; one dtype. bias1:
    [B, N, 1, 1, L]; bias2: [B, 1, heads, L, L]; in float32 or q's dtype, or of 0 elements: none.
    lse: float32, [B N, heads, at least L]: the first L are written. Runs on the current stream.
    """
    for part in _parts(q, bias1, bias2):
        tensors = (part.of(x) for x in (q, k, v))
        out = part.to(o), part.of(lse)[..., : q.shape[-3]]
        ops.attention_forward(*tensors, **part.biases, out=out)


@torch.no_grad()
def attention_bwd(go, q, k, v, o, lse, delta, bias1, bias2, gq, gk, gv, gb1, gb2):
    """Writes the gradients of attention's q, k and v to gq, gk and gv, and adds those of its biases
    to gb1 and gb2.

    go: the gradient of o. q, k, v, o, lse, bias1, bias2: as attention was given them. gb1, gb2:
    float32, of bias1's and bias2's shape, or of 0 elements: not wanted. delta: memory that
    DeepSpeed's kernel needs; not used. Equal calls give equal bits, but for gq, gk and gv where
    cuDNN computes them. Runs on the current stream.
    """
    del delta
    for part in _parts(q, bias1, bias2):
        grad, *tensors = (part.of(x) for x in (go, q, k, v, o))
        sums = part.of(lse)[..., : q.shape[-3]]
        results = tuple(part.to(x) for x in (gq, gk, gv))
        ops.attention_backward(grad, *tensors, sums, **part.biases, out=results)
        for sum_, name in ((gb1, "mask"), (gb2, "bias")):
            if sum_.numel() == 0:
                continue
            like = sum_.new_empty(1).expand(part.biases[name].shape)  # its elements are not read
            found = ops.attention_added_backward(grad, *tensors, like, sums, **part.biases)
            to = part.to(sum_) if name == "mask" else sum_[part.batch]
            to += found.view_as(to)


class _Part:
    """Rows that share a bias2, as the op's batch; all rows if there is none."""

    def __init__(self, batch, rows, bias1, bias2):
        self.batch = batch
        self._rows = rows
        self.biases = {}
        if bias1.numel():
            self.biases["mask"] = self.of(bias1)
        if bias2.numel():
            self.biases["bias"] = bias2[batch]

    def of(self, x):
        """Returns the part's rows of a tensor whose last three dimensions are a row's, or of
        logarithms [rows, heads, tokens]."""
        rows = x if x.dim() == 3 else x.flatten(0, -4)
        return rows[self._rows]

    def to(self, x):
        """Returns the same of a tensor that is written; an error if that is not a view of it."""
        return x.view(-1, *x.shape[-3:])[self._rows]


def _parts(q, bias1, bias2):
    if bias2.numel() == 0:
        return [_Part(0, slice(None), bias1, bias2)]
    each = q.shape[:-3].numel() // bias2.shape[0]
    return [
        _Part(batch, slice(batch * each, (batch + 1) * each), bias1, bias2)
        for batch in range(bias2.shape[0])
    ]
