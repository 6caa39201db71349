# SPDX-License-Identifier: Apache-2.0
"""GPT-2 by other packages, with the weights of gpt2.random_weights().

The packages are transformers with its generate(), and vLLM. For DeepSpeed's layers see
gpt2_deepspeed.py."""

import tempfile

import torch
from gpt2 import EPS


def names_of(weights, layers):
    """Returns {transformers' name: tensor}; its matrices are [in, out]."""
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
    """Returns GPT2LMHeadModel in inference mode. Raises ImportError where transformers is not
    installed."""
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
    # Old releases keep attention masks among the weights.
    missing, unexpected = model.load_state_dict(named, strict=False)
    missing = [name for name in missing if not name.endswith((".attn.bias", ".masked_bias"))]
    if missing or unexpected:
        raise RuntimeError(
            f"found GPT2LMHeadModel without {unexpected} and with {missing}, wanted the names of "
            "transformers 4 and 5; add what this release calls them to names_of()"
        )
    return model


def generating(model, ids, new):
    """Returns a function that generates `new` tokens after ids, and returns both: int64 [B, S +
    new]."""
    mask = torch.ones_like(ids)
    how = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "num_beams": 1}

    @torch.no_grad()
    def generate():
        return model.generate(ids, attention_mask=mask, use_cache=True, **how)

    return generate


def vllm_generating(model, ids, new, places):
    """Returns the same for vLLM, which reads the model from a folder. Raises ImportError without
    vLLM."""
    from vllm import LLM, SamplingParams

    with tempfile.TemporaryDirectory(prefix="gpt2-") as folder:
        model.save_pretrained(folder)
        engine = LLM(
            model=folder,
            skip_tokenizer_init=True,
            dtype=str(model.dtype).removeprefix("torch."),
            max_model_len=places,
            gpu_memory_utilization=0.5,
            enable_prefix_caching=False,  # otherwise only the first run computes the prompt
        )
    how = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": row} for row in ids.tolist()]

    def generate():
        done = engine.generate(prompts, how, use_tqdm=False)
        return torch.tensor([[*row.prompt_token_ids, *row.outputs[0].token_ids] for row in done])

    return generate
