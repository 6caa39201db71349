# SPDX-License-Identifier: Apache-2.0
"""Ten small models with random weights, of the kinds that people compile: what the tests and the
bench of the backend of torch.compile run. Sizes are arguments; the defaults take milliseconds."""

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Sequential):
    def __init__(self, width=16, classes=5):
        super().__init__(
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.LayerNorm(2 * width),
            nn.Linear(2 * width, width),
            nn.SiLU(),
            nn.Linear(width, classes),
        )


class CNN(nn.Module):
    """Convolutions with batch norm and group norm, and a residual connection."""

    def __init__(self, channels=8, classes=5):
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.GroupNorm(2, channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.relu(self.norm1(self.first(x)))
        x = x + F.hardswish(self.norm2(self.second(x)))
        return self.head(x.mean((2, 3)))


def split_heads(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def join_heads(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class Block(nn.Module):
    """An encoder's layer: attention written out, with a mask that is added, norm behind each."""

    def __init__(self, width, heads, has_norm_first=False):
        super().__init__()
        self.heads, self.has_norm_first = heads, has_norm_first
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def attend(self, x, mask):
        q, k, v = (split_heads(y, self.heads) for y in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5)
        if mask is not None:
            scores = scores + mask
        return self.out(join_heads(torch.softmax(scores, -1) @ v))

    def forward(self, x, mask=None):
        if self.has_norm_first:
            x = x + self.attend(self.norm1(x), mask)
            return x + self.down(F.gelu(self.up(self.norm2(x))))
        x = self.norm1(x + self.attend(x, mask))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class BERT(nn.Module):
    def __init__(self, width=16, heads=2, layers=2, words=50, length=32):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, words)

    def forward(self, ids, kept):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        x = self.norm(x)
        mask = (1 - kept[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)


class GPT2(nn.Module):
    """A decoder with fused attention, gelu by tanh and its loss."""

    def __init__(self, width=16, heads=2, layers=2, words=50, length=32):
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids, targets):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            q, k, v = (split_heads(y, self.heads) for y in block.qkv(block.norm1(x)).chunk(3, -1))
            x = x + block.out(join_heads(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
            x = x + block.down(F.gelu(block.up(block.norm2(x)), approximate="tanh"))
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class RMSNorm(nn.Module):
    """Written out, as models' own code does."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos + turned * sin


class Llama(nn.Module):
    def __init__(self, width=16, heads=2, layers=2, words=50, length=32):
        super().__init__()
        self.heads, self.words = heads, nn.Embedding(words, width)
        linear = lambda a, b: nn.Linear(a, b, bias=False)  # noqa: E731
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": RMSNorm(width),
                    "qkv": linear(width, 3 * width),
                    "out": linear(width, width),
                    "norm2": RMSNorm(width),
                    "gate": linear(width, 2 * width),
                    "up": linear(width, 2 * width),
                    "down": linear(2 * width, width),
                }
            )
            for _ in range(layers)
        )
        self.norm, self.head = nn.RMSNorm(width, 1e-6), linear(width, words)
        angles = torch.outer(
            torch.arange(length), 100.0 ** -torch.linspace(0, 1, width // heads // 2)
        )
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def forward(self, ids):
        x = self.words(ids)
        cos, sin = self.cos[: ids.shape[1]].to(x.dtype), self.sin[: ids.shape[1]].to(x.dtype)
        for layer in self.layers:
            h = layer["qkv"](layer["norm1"](x))
            q, k, v = (split_heads(y, self.heads) for y in h.chunk(3, -1))
            mixed = F.scaled_dot_product_attention(
                rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True
            )
            x = x + layer["out"](join_heads(mixed))
            h = layer["norm2"](x)
            x = x + layer["down"](F.silu(layer["gate"](h)) * layer["up"](h))
        return self.head(self.norm(x))


class ViT(nn.Module):
    def __init__(self, width=16, heads=2, layers=2, classes=5, patch=4, size=8):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(torch.randn((size // patch) ** 2, width) * 0.02)
        self.layers = nn.ModuleList(Block(width, heads, True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


class MixtureOfExperts(nn.Module):
    """All experts compute all tokens; each token takes those that its gate has chosen."""

    def __init__(self, width=16, experts=4, chosen=2):
        super().__init__()
        self.chosen = chosen
        self.norm, self.gate = nn.LayerNorm(width), nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * width**-0.5)

    def forward(self, x):
        h = self.norm(x)
        weights, places = torch.softmax(self.gate(h), -1).topk(self.chosen, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        share = torch.zeros_like(self.gate(h)).scatter(-1, places, weights)
        found = F.silu(torch.einsum("tw,ewh->eth", h, self.up))
        found = torch.einsum("eth,ehw->etw", found, self.down)
        return x + (found * share.t()[..., None]).sum(0)


class LSTM(nn.Module):
    """A loop over the tokens, which Dynamo unrolls."""

    def __init__(self, width=16, words=50):
        super().__init__()
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.input, self.state = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)

    def forward(self, ids):
        x = self.words(ids)
        h = c = x.new_zeros(x.shape[0], x.shape[2])
        for i in range(3):
            i_, f, g, o = (self.input(x[:, i]) + self.state(h)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i_) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


class Diffusion(nn.Module):
    """A block of a diffusion model: a time embedding, group norm and attention over pixels."""

    def __init__(self, channels=8):
        super().__init__()
        self.channels = channels
        self.time = nn.Sequential(
            nn.Linear(channels, channels), nn.SiLU(), nn.Linear(channels, channels)
        )
        self.norm1, self.norm2 = nn.GroupNorm(2, channels), nn.GroupNorm(2, channels)
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x, time):
        steps = torch.arange(self.channels // 2, device=x.device)
        angles = time[:, None] * torch.exp(-steps * 0.5)
        embedded = self.time(torch.cat((angles.sin(), angles.cos()), -1))
        h = self.first(F.silu(self.norm1(x))) + embedded[:, :, None, None]
        h = x + self.second(F.silu(self.norm2(h)))
        flat = h.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(flat).chunk(3, -1)
        flat = flat + self.out(F.scaled_dot_product_attention(q, k, v))
        return flat.transpose(1, 2).reshape(h.shape)


class Autoencoder(nn.Module):
    """A variational one, with its loss; the noise is an argument."""

    def __init__(self, width=16, latent=4):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(width, width), nn.ELU(), nn.Linear(width, 2 * latent))
        self.decode = nn.Sequential(
            nn.Linear(latent, width), nn.LeakyReLU(), nn.Linear(width, width)
        )

    def forward(self, x, noise):
        mean, log_var = self.encode(x).chunk(2, -1)
        found = torch.sigmoid(self.decode(mean + noise * torch.exp(0.5 * log_var)))
        divergence = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(-1)
        return F.mse_loss(found, torch.sigmoid(x)) + divergence.mean()


def _ids(batch, length=6):
    return torch.randint(0, 50, (batch, length))


#: name -> (model's class, function of the batch's size that makes its arguments)
MODELS = {
    "mlp": (MLP, lambda n: (torch.randn(n, 16),)),
    "cnn": (CNN, lambda n: (torch.randn(n, 3, 8, 8),)),
    "bert": (BERT, lambda n: (_ids(n), torch.rand(n, 6) > 0.2)),
    "gpt2": (GPT2, lambda n: (_ids(n), _ids(n))),
    "llama": (Llama, lambda n: (_ids(n),)),
    "vit": (ViT, lambda n: (torch.randn(n, 3, 8, 8),)),
    "mixture": (MixtureOfExperts, lambda n: (torch.randn(n, 16),)),
    "lstm": (LSTM, lambda n: (_ids(n),)),
    "diffusion": (Diffusion, lambda n: (torch.randn(n, 8, 4, 4), torch.rand(n))),
    "autoencoder": (Autoencoder, lambda n: (torch.randn(n, 16), torch.randn(n, 4))),
}
