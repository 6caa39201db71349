# SPDX-License-Identifier: Apache-2.0
"""Builds a plugin whose gradients are those of formulas: declared by `gradient-of`, and by nothing.
Compares them with torch's autograd in float64."""

import os
import sys

from conftest import needs_private_build, run_well

TOML = '''name = "mine"
version = "0.1.0"
license = "Apache-2.0"

[[op]]
schema = """mine_gelu(Tensor x, Tensor bias, *, str approximate="tanh") -> Tensor"""
formula = "gelu(x + bias) if approximate == 'none' else gelu_tanh(x + bias)"
gradients = { "bias, x" = "mine_gelu_backward(grads[0], x, bias, approximate=approximate)" }

[[op]]
schema = """mine_gelu_backward(Tensor grad, Tensor x, Tensor bias, *, str approximate="tanh") -> \\
  (Tensor, Tensor)"""
gradient-of = "mine_gelu"
rows = ["x", "grad"]
broadcast = ["bias"]

[[op]]
schema = "mine_norm(Tensor x, Tensor? weight=None, *, float eps=1e-5) -> Tensor"
formula = """
y = x * rsqrt(mean(x * x) + eps)
return y * weight if weight else y
"""
'''

SCRIPT = """
import numpy
import torch
from torch.nn import functional

import opdock
from opdock.testing import check_gradients

torch.manual_seed(3)
x = torch.randn(3, 40, 17, dtype=torch.float64, requires_grad=True)
bias = torch.randn(17, dtype=torch.float64, requires_grad=True)
grad = torch.randn(3, 40, 17, dtype=torch.float64)
for approximate in ("none", "tanh"):
    y = functional.gelu(x + bias, approximate=approximate)
    wanted = torch.autograd.grad(y, (bias, x), grad)
    found = opdock.ops.mine_gelu_backward(
        grad, x.detach(), bias.detach(), approximate=approximate
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    check_gradients("mine_gelu", x[0, :3].detach().numpy(), bias.detach().numpy(),
                    approximate=approximate)

y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
(wanted,) = torch.autograd.grad(y, x, grad)
found, none = opdock.ops.mine_norm_backward(grad, x.detach())
torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
assert none is None
check_gradients("mine_norm", x[0, :3].detach().numpy(), bias.detach().numpy(), eps=0.1)
check_gradients("mine_norm", x[0, :3].detach().numpy(), eps=0.1)

# The plugin brings code of the gradient that it declares, whose bias has a sum over rows; the
# interpreter computes the one that it does not declare.
def ways(op):
    (record,) = [one for one in opdock.explain(op)["chain"] if one["device"] == "cpu"]
    told = record["formula"]
    return told["plugin"], told["compiled"], told["interpreted"]
assert ways("mine_gelu_backward") == (2, 0, 0), ways("mine_gelu_backward")
assert ways("mine_norm_backward")[0] == 0, ways("mine_norm_backward")
try:
    opdock.ops.mine_gelu_backward(grad, x.detach(), x.detach())
except opdock.OpdockError as problem:
    assert "'bias'" in str(problem), problem
else:
    raise AssertionError("a bias with rows was taken, which the rules refuse")
print("compared")
"""


def test_gradients_of_a_plugin_s_formulas(cache, python, quick_compiler, tmp_path):
    needs_private_build()
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "plugin.toml").write_text(TOML)
    (folder / "meson.build").write_text(
        "opdock_plugins += [{'name': 'mine', 'toml': files('plugin.toml')}]\n"
    )
    environment = {
        "CXX": quick_compiler,
        "OPDOCK_CACHE_DIR": cache,
        "OPDOCK_PLUGIN_PATH": folder,
        "OPDOCK_PYTHON": sys.executable,
        "PYTHONPATH": os.environ["PYTHONPATH"],
    }
    assert run_well(python, "-c", SCRIPT, **environment) == "compared\n"
