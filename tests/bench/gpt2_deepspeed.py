# SPDX-License-Identifier: Apache-2.0
"""GPT-2 by the layers that DeepSpeed puts into models, with the weights of gpt2.random_weights().

The layers are made without transformers' model, because DeepSpeed's injection does not support its
newer releases. A step cannot be captured as a graph: DeepSpeed counts tokens on the host and passes
the count to kernels."""

import torch
import torch.nn.functional as F
from gpt2 import EPS

#: {DeepSpeed's parameter: gpt2's name in a layer}; DeepSpeed's matrices are [in, out]
NAMES = {"norm_w": "norm1", "norm_b": "norm1_b"}
NAMES |= {"attention.attn_qkvw": "qkv", "attention.attn_qkvb": "qkv_b"}
NAMES |= {"attention.attn_ow": "out", "attention.attn_ob": "out_b"}
NAMES |= {"mlp.attn_nw": "norm2", "mlp.attn_nb": "norm2_b"}
NAMES |= {"mlp.inter_w": "fc", "mlp.inter_b": "fc_b"}
NAMES |= {"mlp.output_w": "proj", "mlp.output_b": "proj_b"}


def layers_of(weights, sizes, places):
    """Returns DeepSpeed's layers with these weights. Raises ImportError where it is not
    installed."""
    from deepspeed.model_implementations.transformers.ds_transformer import (
        DeepSpeedTransformerInference,
    )
    from deepspeed.ops.transformer.inference.config import DeepSpeedInferenceConfig
    from deepspeed.ops.transformer.inference.ds_attention import DeepSpeedSelfAttention

    # The classes count their layers, and their workspace has room for that many.
    DeepSpeedTransformerInference.layer_id = DeepSpeedSelfAttention.num_layers = 0
    layers = []
    for number in range(sizes.layers):
        config = DeepSpeedInferenceConfig(
            hidden_size=sizes.width,
            intermediate_size=4 * sizes.width,
            heads=sizes.heads,
            num_hidden_layers=sizes.layers,
            layer_norm_eps=EPS,
            dtype=weights["wte"].dtype,
            max_out_tokens=places,
        )
        layer = DeepSpeedTransformerInference(config).eval()
        for theirs, own in NAMES.items():
            weight = weights[f"{number}.{own}"]
            weight = weight.t().contiguous() if weight.dim() == 2 else weight
            owner, _, last = theirs.rpartition(".")
            kept = torch.nn.Parameter(weight, requires_grad=False)
            setattr(layer.get_submodule(owner), last, kept)
        layers.append(layer)
    return layers


class DeepSpeedGPT2:
    """Has the same arguments and methods as gpt2.OpdockGPT2."""

    def __init__(self, weights, sizes, batch, places):
        self.weights, self.sizes = weights, sizes
        self.layers = layers_of(weights, sizes, places)
        device = weights["wte"].device
        self.history = torch.zeros(places, batch, device=device, dtype=torch.int64)
        self.token = torch.zeros(batch, device=device, dtype=torch.int64)
        self.position = 0

    def prompt(self, ids):
        self.position = ids.shape[1]
        self.history[: self.position] = ids.t()
        for layer in self.layers:
            layer.reset_cache()
        return self._choose(ids, torch.arange(self.position, device=ids.device))

    def step(self):
        self.position += 1
        place = torch.full((1,), self.position - 1, device=self.token.device)
        return self._choose(self.token[:, None], place)

    def _choose(self, ids, positions):
        w = self.weights
        x = F.embedding(ids, w["wte"]) + F.embedding(positions, w["wpe"])
        for layer in self.layers:
            x = layer(x)[0]
        h = F.layer_norm(x[:, -1], x.shape[-1:], w["norm"], w["norm_b"], EPS)
        logits = F.linear(h, w["wte"])[..., : self.sizes.vocabulary]
        self.token.copy_(logits.argmax(-1))
        self.history[self.position] = self.token
        return logits
