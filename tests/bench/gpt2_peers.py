# SPDX-License-Identifier: Apache-2.0
"""GPT-2 by other packages, with the weights of gpt2.random_weights(): transformers' generate(), and
DeepSpeed's kernels injected into its model."""

import copy

import torch
from gpt2 import EPS


def names_of(weights, layers):
    """{transformers' name: tensor}; its matrices are [in, out]."""
    named = {"transformer.wpe.weight": weights["wpe"]}
    named["transformer.ln_f.weight"] = weights["norm"]
    named["transformer.ln_f.bias"] = weights["norm_b"]
    parts = {"norm1": "ln_1", "qkv": "attn.c_attn", "out": "attn.c_proj"}
    parts |= {"norm2": "ln_2", "fc": "mlp.c_fc", "proj": "mlp.c_proj"}
    for layer in range(layers):
        for own, theirs in parts.items():
            weight, bias = weights[f"{layer}.{own}"], weights[f"{layer}.{own}_b"]
            name = f"transformer.h.{layer}.{theirs}."
            named[name + "weight"] = weight.t().contiguous() if weight.dim() == 2 else weight
            named[name + "bias"] = bias
    return named


def transformers_model(weights, sizes):
    """GPT2LMHeadModel in inference mode. Raises ImportError where transformers is not there."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=sizes.vocabulary,
        n_positions=sizes.positions,
        n_embd=sizes.width,
        n_layer=sizes.layers,
        n_head=sizes.heads,
        layer_norm_epsilon=EPS,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = GPT2LMHeadModel(config).to(weights["wte"]).eval()
    words = weights["wte"][: sizes.vocabulary]
    named = names_of(weights, sizes.layers)
    named |= {"transformer.wte.weight": words, "lm_head.weight": words}
    # Old releases keep masks of attention beside the weights.
    missing, unexpected = model.load_state_dict(named, strict=False)
    missing = [name for name in missing if not name.endswith((".attn.bias", ".masked_bias"))]
    if missing or unexpected:
        raise RuntimeError(
            f"found GPT2LMHeadModel without {unexpected} and with {missing}, wanted the names of "
            "transformers 4 and 5; add what this release calls them to names_of()"
        )
    return model


def generating(model, ids, new):
    """The function that generates `new` tokens behind ids, and returns both: int64 [B, S + new]."""
    mask = torch.ones_like(ids)
    how = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "num_beams": 1}

    @torch.no_grad()
    def generate():
        return model.generate(ids, attention_mask=mask, use_cache=True, **how)

    return generate


def deepspeed_model(model, dtype, places):
    """The model with DeepSpeed's inference kernels, which it compiles on first use, by nvcc."""
    import deepspeed

    engine = deepspeed.init_inference(
        copy.deepcopy(model),
        dtype=dtype,
        replace_with_kernel_inject=True,
        max_out_tokens=places,
    )
    kinds = {type(module).__name__ for module in engine.module.modules()}
    if not any(kind.startswith("DeepSpeed") for kind in kinds):
        raise RuntimeError(
            "found no layer replaced by DeepSpeed, wanted its GPT-2 layer; use a transformers "
            "whose layers it knows, as 4.35.2"
        )
    return engine
