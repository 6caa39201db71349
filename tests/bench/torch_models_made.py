# SPDX-License-Identifier: Apache-2.0
"""The models that torch_models.py times, with random weights: written out in torch, or those of
transformers where it is installed."""

import importlib.util

import torch
from torch import nn
from torch.nn import functional as F


class BertLayer(nn.Module):
    """A layer of MiniLM: attention, then an MLP, each with its norm after the sum."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)
        self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.act = nn.GELU()

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = self.norm1(self.out(mixed) + x)
        return self.norm2(self.proj(self.act(self.fc(x))) + x)


class Bert(nn.Module):
    def __init__(self, layers, width, heads, vocabulary, positions):
        super().__init__()
        self.tokens, self.positions = (
            nn.Embedding(vocabulary, width),
            nn.Embedding(positions, width),
        )
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.Sequential(*(BertLayer(width, heads) for _ in range(layers)))

    def forward(self, ids):
        return self.layers(self.norm(self.tokens(ids) + self.positions.weight[: ids.shape[1]]))


class GPTLayer(BertLayer):
    """A layer of GPT-2: norms come first, and tokens see earlier ones."""

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = self.qkv(h).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        total = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        normed = self.norm2(total)
        return total + self.proj(F.gelu(self.fc(normed), approximate="tanh"))


class GPT2(nn.Module):
    """Returns the mean loss of the next tokens."""

    def __init__(self, layers, width, heads, vocabulary, positions):
        super().__init__()
        self.tokens, self.positions = (
            nn.Embedding(vocabulary, width),
            nn.Embedding(positions, width),
        )
        self.layers = nn.Sequential(*(GPTLayer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        logits = F.linear(self.norm(self.layers(x)), self.tokens.weight)[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


class Last(nn.Module):
    """A model of transformers, of which only the first result counts."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids)[0]


MINILM = {"layers": 6, "width": 384, "heads": 12, "vocabulary": 30522, "positions": 512}
GPT2_SMALL = {"layers": 12, "width": 768, "heads": 12, "vocabulary": 50304, "positions": 1024}
TINY = {"layers": 2, "width": 64, "heads": 4, "vocabulary": 500, "positions": 64}


def encoders(sizes):
    """Yields (name, model) of the sentence encoder."""
    yield "minilm", Bert(**sizes)
    if importlib.util.find_spec("transformers"):
        import transformers

        config = transformers.BertConfig(
            vocab_size=sizes["vocabulary"],
            hidden_size=sizes["width"],
            num_hidden_layers=sizes["layers"],
            num_attention_heads=sizes["heads"],
            intermediate_size=4 * sizes["width"],
            max_position_embeddings=sizes["positions"],
        )
        yield "minilm of transformers", Last(transformers.BertModel(config))


def random_ids(sizes, rows, length, device):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, sizes["vocabulary"], (rows, length), generator=generator).to(device)
