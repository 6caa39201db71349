# SPDX-License-Identifier: Apache-2.0
"""Passes one wrong argument at a time to each function: Opdock's error names it."""

import re

import pytest
import torch

import opdock
from opdock.compat.deepspeed import inference

NONE = torch.empty(0)


def make(*shape, dtype=torch.float32):
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).to(dtype)


X, ROW = make(2, 3, 8), make(8)
WIDE, BACK = make(8, 16), make(16, 8)
HEADS = make(2, 3, 64)
SCORES = make(2, 2, 3, 3)
INT8, SCALE, HALF = torch.ones(8, 8, dtype=torch.int8), torch.ones(1), make(2, 3, 8).half()
#: a correct call of each function, by position, as DeepSpeed makes it
CALLS = {
    "add_padding_fp32": (make(2, 4, 3, 16), make(2, 4, 3, 16), make(2, 4, 3, 16)),
    "allocate_workspace_fp32": (64, 4, 10, 2, 1, 1, False, 0, 64, 1),
    "apply_rotary_pos_emb": (HEADS, HEADS, 16, 0, 4, True, 10000.0),
    "bias_add_fp32": (X, ROW),
    "bias_geglu": (make(2, 3, 16), make(16)),
    "bias_gelu_fp32": (X, ROW),
    "bias_relu_fp32": (X, ROW),
    "bias_residual_fp32": (X, X + 1, ROW),
    "dequantize_fp32": (INT8, SCALE, 1),
    "einsum_sec_sm_ecm_fp32": (make(5, 2, 3), make(5, 4)),
    "fused_gemm_gelu_fp32": (X, WIDE, None, make(16), BACK, None, False, False),
    "fused_gemm_gelu_int8": (HALF, INT8, ROW.half(), 1e-5, SCALE, 1, False),
    "gated_activation": (make(2, 3, 16), make(16), 3),
    "layer_norm": (X, ROW, ROW, 1e-5),
    "_layer_norm_residual": (X, ROW, X, ROW, ROW, 1e-5),
    "layer_norm_residual_store": (X, ROW, X, ROW, ROW, 1e-5),
    "linear_layer_fp32": (X, WIDE, make(16), True, False, 2, False, 10000.0),
    "linear_layer_int8": (HALF, INT8, ROW.half(), SCALE, 1),
    "mlp_gemm_fp32": (
        *(X, X, ROW, WIDE, BACK, make(16), ROW, ROW, 1e-5),
        *(True, True, None, None, False, 1, False),
    ),
    "mlp_gemm_int8": (
        *(HALF, HALF, ROW.half(), INT8, ROW.half(), ROW.half(), ROW.half()),
        *(1e-5, SCALE, 1, True),
    ),
    "moe_res_matmul": (X, make(16), X + 1),
    "pad_transform_fp32": (HEADS, HEADS, HEADS, 4, True),
    "pre_rms_norm": (X, X, ROW, 1e-5),
    "qkv_gemm_fp32": (X, make(8, 24), None, make(24), ROW, ROW, 1e-5, True, False, False),
    "qkv_gemm_int8": (HALF, INT8, *[ROW.half()] * 3, 1e-5, SCALE, 1, True),
    "repeat_kv_cache_fp32": (1, 2),
    "residual_add_bias_fp32": (X, X + 1, X, ROW, ROW, 1, False, True, False),
    "rms_mlp_gemm_fp32": (X, X, WIDE, BACK, ROW, 1e-5, None, None, False, 1, False),
    "rms_norm": (X, ROW, 1e-5),
    "rms_qkv_gemm_fp32": (X, WIDE, None, ROW, 1e-5, False, False),
    "softmax_fp32": (SCORES, None, None, True, False, False, 1, False, 1.0, 0, 1),
    "softmax_context_fp32": (
        *(make(1, 3, 192), NONE, 16, True, False, 4, -1, 0.5, True, False, 1, False),
        *(0, 1, NONE, 10000.0, True, None, None),
    ),
    "softmax_context_int8": (
        *(HEADS.half(), HEADS.half(), None, NONE.half(), HEADS.half(), None, 4, 0.25),
        *(False, True, False, 1, False),
    ),
    "vector_matmul_fp32": (X, WIDE, False, None, False, False),
    "vector_matmul_int8": (HALF, INT8, SCALE, 1, 0),
    "_vector_add": (X, X + 1, 0.5),
}
#: the beginning of an error of the binding, or of an op that it calls
NAMED = re.compile(r"\w+(\(\))?: (found|argument)")
WRONG = (None, "text", 1.5, -1, [], object(), torch.ones(3, dtype=torch.int16), NONE)


def call(name, arguments):
    """Returns the error's text, or None; any error that is not Opdock's propagates."""
    # In-place functions write into copies.
    own = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    try:
        getattr(inference, name)(*own)
    except opdock.OpdockError as error:
        return str(error)
    return None


@pytest.fixture(autouse=True)
def prompt():
    inference.release_workspace()
    inference.allocate_workspace_fp32(64, 4, 10, 2, 1)
    assert call("softmax_context_fp32", CALLS["softmax_context_fp32"]) is None
    yield
    inference.release_workspace()


def test_each_function_has_a_call():
    """Functions without arguments, and the same function in other dtypes or by another name, are
    left out."""
    stems = {re.sub("_(fp32|fp16|bf16)$", "", name) for name in inference.__all__}
    without = {"reset_cache", "release_workspace", "retake_workspace"}
    same = {"layer_norm_residual_store_pre_ln_res"}
    assert {re.sub("_fp32$", "", name) for name in CALLS} == stems - without - same


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_are_refused_by_name(name):
    right = CALLS[name]
    assert call(name, right) is None
    for number in range(len(right)):
        for wrong in WRONG:
            text = call(name, [*right[:number], wrong, *right[number + 1 :]])
            assert text is None or NAMED.match(text), text
            if text is not None and type(wrong) in (object, str):
                assert re.match(r"\w+(\(\))?: argument '\w+'(\[\d\])?: found", text), text
    for arguments in (right[:-1], right[:1], (), (*right, 1), (*right, None, None, None)):
        text = call(name, arguments)
        assert text is None or NAMED.match(text), text
    with pytest.raises(opdock.ArgumentError, match=rf"^{name}\(\): found .*wanted \("):
        getattr(inference, name)(*right[:1], nonsense=1)
