# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's inference v2, unmodified, on a small Llama made here, compared with eager PyTorch.

    python small_llama.py FOLDER [DEVICE [DTYPE]]

Writes the model to FOLDER, has build_hf_engine() load it, generates for several prompts of
different lengths at once, and compares the tokens and logits with those of the model in float32.
Prints the largest difference of the logits. transformers and huggingface_hub need not be installed:
of these build_hf_engine() needs the model's configuration only. On the CPU DeepSpeed asks CUDA for
its current device, the GPU's architecture and pinned memory: the program answers.
"""

import os
import socket
import sys
import types

import torch
import torch.nn.functional as F

LAYERS, HEADS, KV, SIZE, HIDDEN, INNER, WORDS = 2, 4, 2, 64, 256, 352, 97
THETA, EPS = 10000.0, 1e-5


def make(dtype):
    """Returns the weights by their names in a checkpoint of Hugging Face."""
    made = torch.Generator().manual_seed(11)

    def draw(*shape, scale=1.0):
        return (torch.randn(shape, generator=made) * scale).to(dtype)

    weights = {"model.embed_tokens.weight": draw(WORDS, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name, rows, columns in (
            ("self_attn.q_proj", HEADS * SIZE, HIDDEN),
            ("self_attn.k_proj", KV * SIZE, HIDDEN),
            ("self_attn.v_proj", KV * SIZE, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HEADS * SIZE),
            ("mlp.gate_proj", INNER, HIDDEN),
            ("mlp.up_proj", INNER, HIDDEN),
            ("mlp.down_proj", HIDDEN, INNER),
        ):
            weights[f"{at}{name}.weight"] = draw(rows, columns, scale=1.5 * columns**-0.5)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{at}{name}.weight"] = 1 + draw(HIDDEN, scale=0.1)
    weights["model.norm.weight"] = 1 + draw(HIDDEN, scale=0.1)
    weights["lm_head.weight"] = draw(WORDS, HIDDEN, scale=0.3)
    # DeepSpeed's kernels take 8 elements at a time.
    rows = -(-WORDS // 8) * 8
    weights["lm_head.weight"] = F.pad(weights["lm_head.weight"], (0, 0, 0, rows - WORDS))
    weights["model.embed_tokens.weight"] = F.pad(
        weights["model.embed_tokens.weight"], (0, 0, 0, rows - WORDS)
    )
    return weights


def rms_norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


def turned(x):
    """Returns x, [heads, tokens, SIZE], rotated by the tokens' positions."""
    frequencies = THETA ** (-torch.arange(0, SIZE, 2, device=x.device).float() / SIZE)
    angles = torch.arange(x.shape[1], device=x.device)[:, None] * frequencies
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def eager(weights, tokens):
    """Returns the logits of the last token of one sequence, in float32."""
    w = {name: x.float() for name, x in weights.items()}
    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        h = rms_norm(x, w[f"{at}input_layernorm.weight"])
        q, k, v = (
            F.linear(h, w[f"{at}self_attn.{n}_proj.weight"])
            .unflatten(-1, (-1, SIZE))
            .transpose(0, 1)
            for n in "qkv"
        )
        q, k = turned(q), turned(k).repeat_interleave(HEADS // KV, 0)
        v = v.repeat_interleave(HEADS // KV, 0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(mixed.transpose(0, 1).flatten(1), w[f"{at}self_attn.o_proj.weight"])
        h = rms_norm(x, w[f"{at}post_attention_layernorm.weight"])
        gate = F.silu(F.linear(h, w[f"{at}mlp.gate_proj.weight"]))
        up = F.linear(h, w[f"{at}mlp.up_proj.weight"])
        x = x + F.linear(gate * up, w[f"{at}mlp.down_proj.weight"])
    return F.linear(rms_norm(x[-1], w["model.norm.weight"]), w["lm_head.weight"])


def stand_in_for_transformers(dtype):
    """Makes the modules from which build_hf_engine() takes the model's configuration."""
    config = types.SimpleNamespace(
        model_type="llama",
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        vocab_size=-(-WORDS // 8) * 8,
        max_position_embeddings=2048,
        hidden_act="silu",
        rope_theta=THETA,
        rms_norm_eps=EPS,
        torch_dtype=dtype,
        tie_word_embeddings=False,
    )
    transformers, hub = (types.ModuleType(n) for n in ("transformers", "huggingface_hub"))
    transformers.AutoConfig = types.SimpleNamespace(from_pretrained=lambda path, **named: config)
    transformers.GenerationConfig = None
    hub.snapshot_download = hub.list_repo_tree = None
    sys.modules.update(transformers=transformers, huggingface_hub=hub)


def environment():
    """Sets what a launcher would: one process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_SIZE="1")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))


def on_the_cpu():
    """Answers for a CPU what DeepSpeed's inference v2 asks CUDA for, and keeps it from compiling an
    op for collectives, which one process does not need."""
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    get_accelerator().current_device = lambda: "cpu"
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    arange = torch.arange
    torch.arange = lambda *numbers, pin_memory=False, **named: arange(*numbers, **named)


def engine(folder, weights, dtype):
    """Returns DeepSpeed's engine for the model."""
    from deepspeed.inference.v2.config_v2 import RaggedInferenceEngineConfig
    from deepspeed.inference.v2.engine_factory import build_hf_engine

    torch.save(weights, os.path.join(folder, "pytorch_model.bin"))
    config = RaggedInferenceEngineConfig(
        state_manager={
            "max_tracked_sequences": 8,
            "max_ragged_batch_size": 512,
            "max_ragged_sequence_count": 8,
            "max_context": 1024,
            "memory_config": {"mode": "allocate", "size": 24},
        }
    )
    return build_hf_engine(str(folder), config)


def main(folder, device="cpu", dtype="float16"):
    dtype = getattr(torch, dtype)
    stand_in_for_transformers(dtype)
    environment()
    if device == "cpu":
        on_the_cpu()
    weights = make(dtype)
    used = engine(folder, weights, dtype)
    there = {name: x.to(device) for name, x in weights.items()}
    texts = [[3, 1, 4, 1, 5], [9], [(7 * i + i * i) % WORDS for i in range(150)]]
    late = [2, 6, 5]  # comes while the others are being continued
    uids, new = [0, 1, 2], [torch.tensor(text) for text in texts]
    worst = 0.0
    for step in range(6):
        if step == 3:
            texts.append(late)
            uids, new = [*uids, 3], [*new, torch.tensor(late)]
        # The engine's check of the schedule compares a number with a list (0.19.8).
        logits = used.put(uids, new, do_checks=False)
        wanted = torch.stack([eager(there, torch.tensor(text, device=device)) for text in texts])
        worst = max(worst, (logits.float() - wanted).abs().max().item())
        chosen = wanted.argmax(-1).cpu()
        assert torch.equal(logits.argmax(-1).cpu(), chosen), (step, logits, wanted)
        new = [token.reshape(1) for token in chosen]
        texts = [[*text, int(token)] for text, token in zip(texts, chosen, strict=True)]
    for uid in uids:
        used.flush(uid)
    print(f"{device} {dtype}: the tokens of eager; logits differ by at most {worst:.4f}")
    assert worst < {torch.float16: 0.05, torch.bfloat16: 0.4}[dtype]


if __name__ == "__main__":
    main(*sys.argv[1:])
