# SPDX-License-Identifier: Apache-2.0
"""Tests torch.ops.opdock on a GPU, where there is one; without one they are skipped.

The tests of each plugin compare what its ops compute there. These are about what torch does with
them: gradients, autocast, compilation, streams and graphs.
"""

import subprocess
import sys

import operator_examples
import pytest
import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import opdock
import opdock.torch  # registers the operators

if not torch.cuda.is_available():
    pytest.skip("there is no GPU, or torch was built without it", allow_module_level=True)

OPS = torch.ops.opdock
#: These draw other numbers on each device.
CALLS = [
    call
    for call in operator_examples.unique(operator_examples.differentiable())
    if call[1] not in ("dropout", "attention_dropout", "attention_dropout_backward")
]


@pytest.fixture(scope="module")
def x():
    torch.manual_seed(1)
    return torch.randn(64, 256, device="cuda")


@pytest.fixture(scope="module")
def weight():
    return torch.rand(256, device="cuda")


def results_and_gradient(name, args, keywords, device):
    """Returns the results of a call in float32, and the gradient of its first tensor of floats."""

    def moved(value):
        if isinstance(value, torch.Tensor):
            dtype = torch.float32 if value.dtype == torch.float64 else value.dtype
            return value.detach().to(device, dtype).clone()
        return torch.float32 if value is torch.float64 else value

    args, keywords = pytree.tree_map(moved, (args, keywords))
    first = next(a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point())
    first.requires_grad_()
    found = pytree.tree_leaves(getattr(OPS, name)(*args, **keywords))
    found = [y for y in found if isinstance(y, torch.Tensor) and y.requires_grad]
    if found:
        sum(y.square().sum() for y in found).backward()
        found.append(first.grad)
    return [y.detach().cpu() for y in found]


@pytest.mark.parametrize(
    ("name", "args", "keywords"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS]
)
def test_gradients_are_those_of_the_cpu(name, args, keywords):
    found = results_and_gradient(name, args, keywords, "cuda")
    wanted = results_and_gradient(name, args, keywords, "cpu")
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_tangents(x):
    found, wanted = (torch.func.jvp(f, (x,), (x,)) for f in (OPS.silu, F.silu))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


#: name -> (the op, torch's function), called with float16 or float32 inputs.
IN_AUTOCAST = {
    "softmax": (lambda x, w: OPS.softmax(x.half()), lambda x, w: torch.softmax(x.half(), -1)),
    "layer_norm": (
        lambda x, w: OPS.layer_norm(x.half(), w),
        lambda x, w: F.layer_norm(x.half(), (256,), w),
    ),
    "rms_norm": (
        lambda x, w: OPS.rms_norm(x.half(), w),
        lambda x, w: F.rms_norm(x.half(), (256,), w),
    ),
    "linear": (
        lambda x, w: OPS.linear(x, torch.diag(w)),
        lambda x, w: F.linear(x, torch.diag(w)),
    ),
}


@pytest.mark.parametrize("name", IN_AUTOCAST)
def test_autocast_gives_torchs_dtypes(name, x, weight):
    with torch.autocast("cuda", dtype=torch.float16):
        found, wanted = (call(x, weight) for call in IN_AUTOCAST[name])
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)  # and their dtypes


def test_compiled_by_inductor(x, weight):
    def block(x, weight):
        return OPS.softmax(OPS.rms_norm(x, weight), 0.5)

    compiled = torch.compile(block, fullgraph=True)
    torch.testing.assert_close(compiled(x, weight), block(x, weight))


def test_reduced_overhead(x):
    compiled = torch.compile(lambda x: OPS.softmax(x) + 1, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):  # the third call replays a CUDA graph
        found = compiled(x).clone()
        torch.testing.assert_close(found, OPS.softmax(x) + 1)


def test_backend_opdock(x, weight):
    def block(x, weight):
        return F.layer_norm(F.gelu(x) * x, (256,), weight)

    found, wanted = x.clone().requires_grad_(), x.clone().requires_grad_()
    torch.compile(block, backend="opdock")(found, weight).square().sum().backward()
    block(wanted, weight).square().sum().backward()
    torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-3, atol=1e-3)


def replayed(call):
    """Returns what two replays of the captured call gave."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    found = []
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        found.append(result.clone())
    return found


def test_a_captured_call_gives_the_same_numbers(x):
    for found in replayed(lambda: OPS.softmax(x)):
        assert torch.equal(found, OPS.softmax(x))


def test_each_replay_draws_anew(x):
    first, second = replayed(lambda: OPS.dropout(x)[0])
    assert not torch.equal(first, second)


def test_numbers_are_drawn_as_opdocks_own_functions_draw_them(x):
    torch.manual_seed(5)
    wanted = [opdock.ops.dropout(x)[0] for _ in range(2)]
    torch.manual_seed(5)
    found = [OPS.dropout(x)[0], opdock.ops.dropout(x)[0]]
    assert all(map(torch.equal, found, wanted)) and not torch.equal(*wanted)


def test_on_another_stream(x):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        found = OPS.softmax(x)
    side.synchronize()
    assert torch.equal(found, OPS.softmax(x))


ASKED = """
import torch
import opdock.torch

asked, ask = [], torch._C._get_deterministic_algorithms
torch._C._get_deterministic_algorithms = lambda: asked.append(1) or ask()
q = torch.randn(1, 300, 2, 64, device="cuda", dtype=torch.half, requires_grad=True)
torch.ops.opdock.attention_forward(q, q, q, causal=True)[0].sum().backward()
print(len(asked))
"""


def test_a_gradient_of_attention_asks_once_whether_equal_bits_are_wanted():
    """Plan and run of attention_backward both need the answer if the host's service computes it."""
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 1
