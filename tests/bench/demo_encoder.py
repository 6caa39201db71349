# SPDX-License-Identifier: Apache-2.0
"""Times the demo's encoder with random weights, in PyTorch and with Opdock's plugins.

The encoder has the shape of all-MiniLM-L6-v2; the plugins compute softmax, add_layer_norm and
bias_gelu. It runs in float32, on the GPU if there is one; the figures are medians of alternating
runs. ./dev demo times the real encoder."""

import argparse
import copy
import statistics
import sys
import time
from pathlib import Path

import record
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "python" / "demo"))
from encoder import Encoder, torch_add_layer_norm, torch_linear_gelu, torch_softmax
from main import opdock_add_layer_norm, opdock_linear_gelu, opdock_softmax

HIDDEN, INNER, WORDS, POSITIONS, LAYERS, HEADS = 384, 1536, 30522, 512, 6, 12
#: (texts, tokens of each text)
CASES = {"cuda": [(1, 128), (32, 128), (256, 256)], "cpu": [(1, 128), (6, 256)]}
RUNS = 30


class RandomEncoder(Encoder):
    """Encodes (texts, tokens): that many random texts with that many tokens each and no padding."""

    def __init__(self, device):
        self.device = torch.device(device)
        self.heads, self.layers, self.eps = HEADS, LAYERS, 1e-12
        self.softmax, self.add_layer_norm = torch_softmax, torch_add_layer_norm
        self.linear_gelu = torch_linear_gelu
        sizes = {
            "attention.self.query": (HIDDEN, HIDDEN),
            "attention.self.key": (HIDDEN, HIDDEN),
            "attention.self.value": (HIDDEN, HIDDEN),
            "attention.output.dense": (HIDDEN, HIDDEN),
            "intermediate.dense": (INNER, HIDDEN),
            "output.dense": (HIDDEN, INNER),
        }
        shapes = {
            "embeddings.word_embeddings.weight": (WORDS, HIDDEN),
            "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
            "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        }
        norms = ["embeddings."]
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}."
            norms += [name + "attention.output.", name + "output."]
            for part, size in sizes.items():
                shapes |= {f"{name}{part}.weight": size, f"{name}{part}.bias": size[:1]}
        for name in norms:
            shapes |= {f"{name}LayerNorm.{part}": (HIDDEN,) for part in ("weight", "bias")}
        generator = torch.Generator().manual_seed(1)
        self.weights = {
            name: (0.05 * torch.randn(shape, generator=generator)).to(device)
            for name, shape in shapes.items()
        }

    def tokenize(self, texts):
        generator = torch.Generator().manual_seed(2)
        ids = torch.randint(0, WORDS, texts, generator=generator).to(self.device)
        mask = torch.zeros((texts[0], 1, 1, texts[1]), device=self.device)
        return ids, torch.ones_like(ids), mask


def timed(encoders, texts):
    """Returns the median milliseconds of each encoder."""
    times = [[] for _ in encoders]
    for run in range(5 + RUNS):
        for i in range(len(encoders)) if run % 2 else reversed(range(len(encoders))):
            start = time.perf_counter()
            if encoders[i](texts).is_cuda:
                torch.cuda.synchronize()
            times[i].append(1e3 * (time.perf_counter() - start))
    return [statistics.median(taken[5:]) for taken in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    encoder = RandomEncoder(device)
    with_plugins = copy.copy(encoder)
    with_plugins.softmax, with_plugins.add_layer_norm = opdock_softmax, opdock_add_layer_norm
    with_plugins.linear_gelu = opdock_linear_gelu
    results = []
    for texts in CASES[device]:
        difference = (with_plugins(texts) - encoder(texts)).abs().max().item()
        torch_ms, opdock_ms = timed([encoder, with_plugins], texts)
        name = f"encoder {texts[0]}x{texts[1]} float32 {device}"
        print(
            f"  {name:<32} torch {torch_ms:8.2f} ms, opdock {opdock_ms:8.2f} ms, "
            f"{torch_ms / opdock_ms:.2f} times as fast, difference {difference:.1e}"
        )
        for whose, median in (("torch", torch_ms), ("opdock", opdock_ms)):
            results.append({"name": name, "peer": whose, "median_ms": round(median, 3)})
    if arguments.record:
        record.append(arguments.record, "demo_encoder", results)


if __name__ == "__main__":
    main()
