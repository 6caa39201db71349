# SPDX-License-Identifier: Apache-2.0
"""Tests builders of ops that no plugin serves, but the plugins' references in PyTorch do."""

import os
from pathlib import Path

import pytest
import small_deepspeed
from conftest import run_python

SOURCES = Path(os.environ.get("OPDOCK_BUILD_DIR", ".")) / "share" / "opdock" / "plugins-src"
# Source plugins that may not be built: their ops are known, and nothing but references serves them.
UNSERVED = {"OPDOCK_PLUGIN_PATH": str(SOURCES), "OPDOCK_BUILD": "never"}

BEGIN = """
import warnings, torch, opdock
from opdock.compat import deepspeed as compat
told = []
warnings.showwarning = lambda message, *rest, **named: told.append((message, rest[1]))
warnings.simplefilter("always")
"""

ADAM = """
x = [torch.ones(8) for _ in range(4)]
module.multi_tensor_adam(65536, None, [[t] for t in x], .1, .9, .99, 1e-8, 1, 1, 1, 0.)
assert torch.allclose(x[1], torch.full((8,), 0.9)), x[1]
"""


@pytest.fixture
def python(tmp_path):
    """Returns a function that runs code in which no plugin serves an op, beside a DeepSpeed."""
    if not SOURCES.is_dir():
        pytest.skip(f"found no {SOURCES}: OPDOCK_BUILD_DIR names no build")
    small_deepspeed.write(tmp_path)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def run(code, **environment):
        return run_python(BEGIN + code, **{**UNSERVED, "PYTHONPATH": path, **environment})

    return run


def test_the_references_stand_in_with_one_warning(python):
    """One for a module, however many of its ops are called."""
    python(
        """
builder = compat.FusedAdamBuilder()
assert builder.is_compatible() is False and "build-policy" in builder.error_log
assert builder.verdict().stands_in
module = builder.load()
"""
        + ADAM
        + """
assert compat.FusedAdamBuilder().load() is builder.jit_load() is module
(message, file), = told
assert issubclass(type(message), opdock.FallbackWarning) and file == "<string>", file
assert message.reasons[0]["code"] == "build-policy"
for part in ("fused_adam", "build-policy", "OPDOCK_FALLBACK=error", "OPDOCK_DEEPSPEED_EXCLUDE"):
    assert part in str(message), part
inference = compat.InferenceBuilder().load()
y = inference.layer_norm_fp32(torch.randn(1, 3, 8), torch.ones(8), torch.zeros(8), 1e-5)
assert abs(y.mean().item()) < 1e-6
inference.bias_add_fp32(y, torch.ones(8))
q, k = torch.randn(2, 1, 2, 8)
inference.apply_rotary_pos_emb(q, k, 4, 0, 2, False, 10000.0)
assert [str(message).partition(":")[0] for message, _ in told] == [
    "fused_adam", "transformer_inference"]
"""
    )


def test_the_policy_counts(python):
    python(
        "module = compat.FusedAdamBuilder().load()\n" + ADAM + "assert not told",
        OPDOCK_FALLBACK="silent",
    )
    python(
        """
builder = compat.FusedAdamBuilder()
assert builder.is_compatible() is False and not builder.verdict().stands_in
try:
    builder.load()
    raise AssertionError("loaded")
except opdock.IncompatibleError as error:
    for part in ("fused_adam", "build-policy", "OPDOCK_FALLBACK=error"):
        assert part in str(error), str(error)
    assert error.reasons[0]["code"] == "build-policy"
""",
        OPDOCK_FALLBACK="error",
    )


def test_an_op_without_references_is_deepspeeds_own(python):
    """So is one that is excluded, or that was compiled when DeepSpeed was installed."""
    python(
        """
assert compat.AsyncIOBuilder().verdict().reference is None
assert compat.AsyncIOBuilder().load() == "their own load of async_io"
assert compat.FusedAdamBuilder().load() == "their fused_adam"
import os, deepspeed.ops.op_builder as theirs
os.environ["OPDOCK_DEEPSPEED_EXCLUDE"] = ""
folder = os.path.join(os.path.dirname(theirs.__file__), "..", "adam")
os.makedirs(folder)
open(os.path.join(folder, "fused_adam_op.so"), "w").close()
assert compat.FusedAdamBuilder().load() == "their fused_adam"
compat.install()
assert theirs.FusedAdamBuilder().load() == "their fused_adam"
assert theirs.FusedAdamBuilder().is_compatible() is True and not told
""",
        OPDOCK_DEEPSPEED_EXCLUDE="fused_adam",
    )


def test_an_unmodified_deepspeed_gets_them_too(python):
    python(
        """
compat.install()
import deepspeed.ops.op_builder as theirs, deepspeed.git_version_info as info
from opdock.compat.deepspeed import fused_adam, inference
builder = theirs.FusedAdamBuilder()
assert builder.is_compatible() is False and "build-policy" in builder.error_log
assert builder.load() is builder.jit_load() is fused_adam and len(told) == 1
assert theirs.InferenceBuilder().load() is inference and len(told) == 2
assert not any(info.installed_ops.values())
report = {op["name"]: op for op in compat.report()["ops"]}
assert report["fused_adam"]["stands_in"] and not report["fused_adam"]["served"]
assert not report["async_io"]["stands_in"]
"""
    )
