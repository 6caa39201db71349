# SPDX-License-Identifier: Apache-2.0
"""The binding has each function of both versions; docs/reference/deepspeed.md lists each."""

import inspect
import pathlib
import re

import pytest
from conftest import run_python

from opdock.compat.deepspeed import inference


def words(text):
    return text.split()


#: exports of DeepSpeed 0.7.7's module
OLD = words("""
_layer_norm_residual add_padding_fp16 add_padding_fp32 allocate_workspace_fp16
allocate_workspace_fp32 apply_rotary_pos_emb bias_add_fp16 bias_add_fp32 bias_geglu bias_gelu_fp16
bias_gelu_fp32 bias_relu_fp16 bias_relu_fp32 bias_residual_fp16 bias_residual_fp32
einsum_sec_sm_ecm_fp16 einsum_sec_sm_ecm_fp32 fused_gemm_gelu_fp16 fused_gemm_gelu_fp32 layer_norm
layer_norm_residual_store linear_layer_fp16 linear_layer_fp32 linear_layer_int8 mlp_gemm_fp16
mlp_gemm_fp32 mlp_gemm_int8 moe_res_matmul pad_transform_fp16 pad_transform_fp32 qkv_gemm_fp16
qkv_gemm_fp32 qkv_gemm_int8 residual_add_bias_fp16 residual_add_bias_fp32 softmax_context_fp16
softmax_context_fp32 softmax_context_int8 softmax_fp16 softmax_fp32 vector_matmul_fp16
vector_matmul_fp32 vector_matmul_int8
""")
#: exports of 0.19.8's module: those that exist once, and those that exist for each of fp32, fp16
#: and bf16
NEW = words("""
_layer_norm_residual _vector_add apply_rotary_pos_emb gated_activation layer_norm
layer_norm_residual_store_pre_ln_res moe_res_matmul pre_rms_norm release_workspace reset_cache
retake_workspace rms_norm softmax_context_int8
""")
NEW_FOR_EACH = words("""
add_padding allocate_workspace bias_add bias_gelu bias_relu bias_residual dequantize
einsum_sec_sm_ecm fused_gemm_gelu linear_layer mlp_gemm pad_transform qkv_gemm repeat_kv_cache
residual_add_bias rms_mlp_gemm rms_qkv_gemm softmax softmax_context vector_matmul
""")
#: functions that DeepSpeed's Python calls and its modules do not have
ASKED_FOR = ["fused_gemm_gelu_int8", "layer_norm_fp16", "layer_norm_fp32"]
#: parameters of some functions beyond those in their signature
FORMS = {
    "softmax_context_fp16": words("""norm_factor triangular local_attention window_size no_masking
        layer_id num_layers alibi num_kv rope_theta is_prompt token_idx position_ids"""),
    "qkv_gemm_bf16": words("q_int8 transposed_mode num_layers external_cache mp_size rank"),
    "mlp_gemm_int8": ["preLayerNorm"],
}
#: functions of 0.7.7 in a dtype that only 0.19.8 has
MORE = ["layer_norm_bf16"]


def test_all_names_of_both_versions():
    assert len(OLD) == 43
    new = NEW + [f"{stem}_{suffix}" for stem in NEW_FOR_EACH for suffix in ("fp32", "fp16", "bf16")]
    assert set(inference.__all__) == {*OLD, *new, *ASKED_FOR, *MORE}
    for name in inference.__all__:
        function = getattr(inference, name)
        assert function.__name__ == name and function.__doc__, name
        assert "at" not in inspect.signature(function).parameters


def test_the_page_lists_each_function():
    """By its name without the dtype, in the table of the page."""
    page = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "deepspeed.md"
    table = page.read_text().partition("## The inference functions")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.M))))
    stems = {re.sub("_(fp32|fp16|bf16)$", "", name) for name in inference.__all__}
    assert stems <= listed, stems - listed


CODE = """
import sys, torch
before = set(sys.modules)
from opdock.compat.deepspeed import InferenceBuilder
module = InferenceBuilder().load()
assert module.__name__ == "opdock.compat.deepspeed.inference", module
assert "deepspeed" not in sys.modules and "numpy" not in set(sys.modules) - before
x, bias = torch.ones(2, 3, 8), torch.ones(8)
assert module.bias_add_fp32(x, bias) is x and (x == 2).all()
"""


def test_the_builder_loads_it_without_deepspeed():
    """Runs in a new process with torch. tests/bench/builder_load.py measures how long it takes."""
    run_python(CODE)


def test_a_missing_plugin_is_named(tmp_path):
    """The module is not served in part: the reason names the missing op."""
    code = """
from opdock.compat.deepspeed._verdict import verdict
found = verdict("transformer_inference")
assert not found.serves, found.text
print(found.text)
"""
    done = run_python(code, OPDOCK_PLUGIN_PATH=str(tmp_path), OPDOCK_BUILD="never")
    assert "bias_add" in done.stdout


@pytest.mark.parametrize("name", ["softmax_context_fp16", "qkv_gemm_bf16", "mlp_gemm_int8"])
def test_help_says_what_a_function_takes(name):
    """The signature has the parameters that all versions pass; the text names those of one version
    only."""
    function = getattr(inference, name)
    fixed = [p for p in inspect.signature(function).parameters.values() if p.kind.name[0] == "P"]
    assert len(fixed) >= 6 and all(p.annotation is not p.empty for p in fixed)
    for more in FORMS[name]:
        assert re.search(rf"\b{more}\b", function.__doc__), more
