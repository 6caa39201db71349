# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's own kernel injection, unmodified, on models of transformers: the tokens of eager.

DeepSpeed 0.19.8 with the transformers whose layers it knows; on the CPU, for which it has no
inference kernels itself, and on a GPU, where Opdock's take the place of its own. The weights are
random.
"""

import os
import pathlib

import pytest
from conftest import needs_deepspeed, run_python

BESIDE = pathlib.Path(os.environ.get("OPDOCK_BUILD_DIR", "build")) / "beside"
PACKAGES = [
    BESIDE / name
    for name in ("transformers==4.33.3", "tokenizers==0.13.3", "huggingface_hub==0.17.3")
]
pytestmark = [
    needs_deepspeed,
    pytest.mark.skipif(
        not all(path.is_dir() for path in PACKAGES),
        reason="transformers 4.33.3 is not there (tests/requirements-beside.txt, by ./dev)",
    ),
]

BEGIN = """
import copy, sys, torch, transformers
from opdock.compat import deepspeed as compat
compat.install()
import deepspeed
torch.manual_seed(0)
dtype, device = getattr(torch, sys.argv[1]), sys.argv[2]
ends = {"vocab_size": 500, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
heads = {"num_hidden_layers": 3, "hidden_size": 128, "num_attention_heads": 4}
gpt = {"n_layer": 3, "n_embd": 128, "n_head": 4}

def spread(model):
    '''Weights that tell tokens apart, and biases that are not zero.'''
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.mul_(3)
            elif "bias" in name:
                weight.add_(torch.randn_like(weight) / 10)
    return model.to(device, dtype).eval()

def inject(model):
    engine = deepspeed.init_inference(
        copy.deepcopy(model), dtype=dtype, replace_with_kernel_inject=True, max_out_tokens=64)
    assert any(type(one).__name__.startswith("DeepSpeed") for one in engine.module.modules())
    assert "opdock.compat.deepspeed.inference" in sys.modules
    return engine
"""

MODELS = {
    "gpt2": "transformers.GPT2LMHeadModel(transformers.GPT2Config(**gpt, **ends))",
    "llama": "transformers.LlamaForCausalLM(transformers.LlamaConfig(**heads, "
    "intermediate_size=256, **ends))",
    "gptj": "transformers.GPTJForCausalLM(transformers.GPTJConfig(**gpt, rotary_dim=16, **ends))",
    "gpt_neox": "transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**heads, "
    "intermediate_size=512, **ends))",
    "gpt_neo": "transformers.GPTNeoForCausalLM(transformers.GPTNeoConfig(num_layers=2, "
    "hidden_size=128, num_heads=4, attention_types=[[['global', 'local'], 1]], window_size=8, "
    "**ends))",
    "opt": "transformers.OPTForCausalLM(transformers.OPTConfig(**heads, ffn_dim=512, "
    "word_embed_proj_dim=128, **ends))",
}


def run(code, dtype, device):
    path = os.pathsep.join([*map(str, PACKAGES), os.environ.get("PYTHONPATH", "")])
    environment = {"DS_ACCELERATOR": device, "DS_SKIP_CUDA_CHECK": "1"}
    run_python(BEGIN + code, dtype, device, PYTHONPATH=path, **environment)


@pytest.mark.parametrize("dtype, error", [("float32", 1e-5), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("name", MODELS)
def test_the_tokens_of_eager(name, dtype, error, device):
    """And the logits, relative to the largest; a second sequence in the same engine too."""
    gelu = 5e-4 if name == "gpt_neox" else 0  # eager has GELU by erf, DeepSpeed by tanh
    run(
        f"""
model = spread({MODELS[name]})
engine = inject(model)
for shape in ((2, 7), (3, 20), (1, 2)):
    ids = torch.randint(1, 500, shape).to(device)
    with torch.no_grad():
        wanted, found = model(ids).logits, engine.module(ids).logits
        worst = (found - wanted).abs().max() / wanted.abs().max()
        assert worst <= {error} + {gelu}, worst
        if dtype != torch.float32:
            continue
        options = dict(max_new_tokens=20, do_sample=False)
        assert torch.equal(engine.generate(ids, **options), model.generate(ids, **options))
""",
        dtype,
        device,
    )


def test_an_encoder(device):
    """BERT, whose GELU eager computes by tanh here as DeepSpeed does; with rows of padding."""
    run(
        """
model = spread(transformers.BertModel(transformers.BertConfig(
    **heads, intermediate_size=512, vocab_size=500, hidden_act="gelu_new")))
engine = inject(model)
ids = torch.randint(1, 500, (2, 9)).to(device)
mask = torch.ones_like(ids)
mask[1, 5:] = 0
with torch.no_grad():
    wanted = model(ids, attention_mask=mask).last_hidden_state
    found = engine(ids, attention_mask=mask).last_hidden_state
worst = (found - wanted)[mask.bool()].abs().max() / wanted.abs().max()
assert worst < 1e-5, worst
""",
        "float32",
        device,
    )
