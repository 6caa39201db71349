# SPDX-License-Identifier: Apache-2.0
"""GPT-2 built from Opdock's ops, with random weights: the model that gpt2_decode.py times.

In a step with one new token for each row, a layer takes eight launches and copies nothing between
them: the sum of the previous branch and its norm, the product to queries, keys and values,
append_kv, attention, a product, a sum and its norm, and the two products of the MLP. (Where
cuBLASLt splits a sum it launches one more.) Residuals are added together with the norm, which reads
them anyway, so that no product has a third matrix to read."""

from dataclasses import dataclass

import torch

import opdock

EPS = 1e-5
#: True: weights are stored [out, in], as torch.nn.Linear has them, so that the summed elements are
#: contiguous in both factors. False: [in, out].
TRANSPOSED = True


@dataclass(frozen=True)
class Sizes:
    """Sizes of GPT-2 small."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50257
    positions: int = 1024

    @property
    def columns(self):
        """Columns of the head's product: the vocabulary, rounded up to a multiple of 64. The added
        columns are no tokens: their weights are zeros, and they are cut off before the largest
        logit is selected."""
        return -(-self.vocabulary // 64) * 64

    @property
    def head_size(self):
        return self.width // self.heads


def random_weights(sizes, device, dtype, seed=1):
    """Returns {name: tensor}; names of layer 3 begin with "3.". Matrices are [out, in].

    The spreads are chosen so that greedy tokens distinguish rows, positions and caches. Embeddings
    are small compared with what the layers add, as a head tied to them would repeat the last token.
    The layers add little that all tokens have in common: queries and keys are large enough to
    attend to some tokens and not to the mean of all, and the MLP's second matrix removes the mean
    of its inputs."""
    generator = torch.Generator(device).manual_seed(seed)

    def random(*shape, spread):
        return spread * torch.randn(shape, generator=generator, device=device)

    w, weights = sizes.width, {}
    weights["wte"] = random(sizes.columns, w, spread=0.1)
    weights["wte"][sizes.vocabulary :] = 0
    weights["wpe"] = random(sizes.positions, w, spread=0.1)
    shapes = {"qkv": (3 * w, w), "out": (w, w), "fc": (4 * w, w), "proj": (w, 4 * w)}
    norms = ["norm"]
    for layer in range(sizes.layers):
        norms += [f"{layer}.norm1", f"{layer}.norm2"]
        for name, (rows, inputs) in shapes.items():
            weights[f"{layer}.{name}"] = random(rows, inputs, spread=inputs**-0.5)
            weights[f"{layer}.{name}_b"] = random(rows, spread=0.1)
        weights[f"{layer}.qkv"][: 2 * w] *= 1.4
        weights[f"{layer}.out"] *= 0.7
        weights[f"{layer}.proj"] -= weights[f"{layer}.proj"].mean(1, keepdim=True)
        weights[f"{layer}.proj"] *= 2
    for name in norms:
        weights[name] = 1 + random(w, spread=0.1)
        weights[name + "_b"] = random(w, spread=0.1)
    return {name: weight.to(dtype) for name, weight in weights.items()}


class OpdockGPT2:
    """Generates greedy tokens for `batch` rows. All that a step reads and writes is on the device,
    at the same addresses in each step, so that a captured step can be replayed.

    weights: from random_weights(); places: how many tokens of a row the cache holds, prompt and new
    ones together."""

    def __init__(self, weights, sizes, batch, places):
        self.weights, self.sizes, self.batch = weights, sizes, batch
        if not TRANSPOSED:
            turned = ("qkv", "out", "fc", "proj")
            self.weights = {
                name: weight.t().contiguous() if name.split(".")[-1] in turned else weight
                for name, weight in weights.items()
            }
        device, dtype = weights["wte"].device, weights["wte"].dtype
        shape = (sizes.layers, 2, batch, sizes.heads, places, sizes.head_size)
        # append_kv and attention take [B, places, heads, D]; the keys of one head are contiguous.
        self.cache = torch.zeros(shape, device=device, dtype=dtype).transpose(3, 4)
        self.token = torch.zeros(batch, device=device, dtype=torch.int64)
        #: [places, B]: the prompt's tokens and the new ones. New tokens are added to zeros, because
        #: index_add_ takes 32-bit positions and index_copy_ does not.
        self.history = torch.zeros(places, batch, device=device, dtype=torch.int64)
        #: The position where a step's tokens begin, and how many tokens there are after it.
        self.start, self.lengths = self.counters = torch.zeros(
            (2, batch), device=device, dtype=torch.int32
        )

    def prompt(self, ids):
        """Starts a new sequence. ids: int64 [B, S], on the device. Returns the logits of the first
        new token, [B, vocabulary], which stay valid until the next step."""
        length = ids.shape[1]
        self.start.fill_(0)
        self.lengths.fill_(length)
        self.history.zero_()[:length] = ids.t()
        positions = torch.arange(length, device=ids.device).repeat(self.batch)
        logits = self._forward(ids.flatten(), positions)
        self.start.fill_(length)
        self.lengths.fill_(length + 1)
        return logits

    def step(self):
        """Generates one more token for each row. Returns its logits, as prompt() does."""
        logits = self._forward(self.token, self.start)
        self.counters.add_(1)
        return logits

    def _forward(self, ids, positions):
        """Runs the model. ids, positions: [B * S], with the tokens of each row contiguous."""
        w, ops = self.weights, opdock.ops
        x = torch.nn.functional.embedding(ids, w["wte"])
        branch = torch.nn.functional.embedding(positions, w["wpe"])
        for layer in range(self.sizes.layers):
            x, branch = self._layer(x, branch, layer)
        # Only the last token of each row counts.
        x, branch = (t.view(self.batch, -1, t.shape[-1])[:, -1] for t in (x, branch))
        h, _ = ops.add_layer_norm(branch, x, w["norm"], w["norm_b"], eps=EPS)
        logits = ops.linear(h, w["wte"])[:, : self.sizes.vocabulary]
        torch.argmax(logits, -1, out=self.token)
        # The new token's position is the same in all rows.
        self.history.index_add_(0, self.lengths[:1], self.token[None])
        return logits

    def _layer(self, x, branch, layer):
        """Runs one layer on the input x + branch; returns its output as such a pair. Both are
        [B * S, width]."""
        ops, sizes = opdock.ops, self.sizes

        def w(name):
            return self.weights[f"{layer}.{name}"], self.weights[f"{layer}.{name}_b"]

        h, x = ops.add_layer_norm(branch, x, *w("norm1"), eps=EPS)
        qkv = ops.linear(h, *w("qkv"), transposed=TRANSPOSED)
        q, k, v = qkv.view(self.batch, -1, 3, sizes.heads, sizes.head_size).unbind(2)
        k_cache, v_cache = self.cache[layer]
        q = ops.append_kv(q, k, v, k_cache, v_cache, self.start)
        causal = q.shape[1] > 1
        mixed = ops.attention(q, k_cache, v_cache, lengths=self.lengths, causal=causal)
        branch = ops.linear(mixed.view(x.shape), *w("out"), transposed=TRANSPOSED)
        h, x = ops.add_layer_norm(branch, x, *w("norm2"), eps=EPS)
        (fc, fc_b), (proj, proj_b) = w("fc"), w("proj")
        branch = ops.mlp(h, fc, proj, fc_b, proj_b, activation="gelu_tanh", transposed=TRANSPOSED)
        return x, branch
