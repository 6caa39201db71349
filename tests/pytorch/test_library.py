# SPDX-License-Identifier: Apache-2.0
"""Tests libopdock_torch: which calls stay out of Python, who owns what a call passes, what happens
where the library or its guard cannot be used, and programs without Python."""

import os
import shutil
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from conftest import run_python
from torch.fx.experimental.proxy_tensor import make_fx

import opdock
import opdock.torch
from opdock import _opdock
from opdock.torch import _library, _recorder, _register
from opdock.torch._schema import schema

OPS = torch.ops.opdock
ROOT = Path(__file__).resolve().parents[2]
TORCH = Path(torch.__file__).parent
compiler = os.environ.get("CXX") or shutil.which("c++")


def python_frames(call):
    """Returns the files of Opdock's Python functions that a call enters."""
    files = []

    def profile(frame, event, argument):
        if event == "call":
            files.append(frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    package = Path(opdock.__file__).parent
    return [Path(file).name for file in files if package in Path(file).parents]


def test_the_library_is_used_here():
    assert _library.problem() is None and _library.has_guard()


def test_plain_calls_do_not_enter_python():
    x, weight = torch.randn(3, 8), torch.nn.Parameter(torch.ones(8))
    lists = [[torch.rand(3)] for _ in range(4)]
    OPS.softmax(x)  # the plugin is loaded by the first call
    OPS.adam_(*lists, torch.tensor(0.0))
    assert python_frames(lambda: OPS.softmax(x)) == []
    assert python_frames(lambda: OPS.softmax(x[1:])) == []  # a view has autograd data
    assert python_frames(lambda: OPS.adam_(*lists, torch.tensor(0.0))) == []
    with torch.no_grad():
        assert python_frames(lambda: OPS.rms_norm(x, weight)) == []
    with torch.inference_mode():
        assert python_frames(lambda: OPS.rms_norm(x, weight)) == []
    tangent = torch.ones(3, 8)
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, tangent)
        with pytest.raises(opdock.UnsupportedError, match="^softmax: found a tensor with a tang"):
            OPS.softmax(dual)


def test_recorded_calls_enter_python_where_python_records(recorder):
    x = torch.randn(3, 8, requires_grad=True)
    result = OPS.rms_norm(x, None)
    result.sum().backward()  # finds the gradient's operator
    frames = python_frames(lambda: OPS.rms_norm(x, None).sum().backward())
    assert frames == [] if recorder else "_autograd.py" in frames


@pytest.mark.skipif(
    not (TORCH / "include" / "torch" / "csrc" / "autograd").exists(), reason="torch has no headers"
)
def test_the_recorder_is_built_for_this_torch():
    assert _recorder.problem() is None
    x = torch.randn(3, 8, requires_grad=True)
    assert OPS.softmax(x).grad_fn.name() == "opdock::softmax"


def test_a_recorder_for_another_torch_is_not_used():
    if _recorder.problem() is not None:
        pytest.skip(_recorder.problem())
    build = f"{torch.__version__} another 1"  # another commit
    found = _opdock.torch_open_recorder(_recorder.file(), build, _register.register_gradient)
    assert found is not None and found.endswith(
        f"wanted one for {build}; build Opdock again with this torch"
    )


@pytest.mark.skipif(_recorder.problem() is not None, reason=str(_recorder.problem()))
@pytest.mark.parametrize(
    "call",
    [
        lambda x: OPS.split_rows(x, [1, 2]),
        lambda x: OPS.cross_entropy(x, torch.tensor([0, 1, 2])),
        lambda x: OPS.attention(*[x.reshape(1, 3, 1, 8)] * 3, causal=True),
        lambda x: OPS.dropout(x, 0.25),
    ],
    ids=["split_rows", "cross_entropy", "attention", "dropout"],
)
def test_plain_sizes_and_random_numbers_do_not_enter_python(call):
    x = torch.randn(3, 8)
    call(x)
    assert python_frames(lambda: call(x)) == []


def test_symbolic_sizes_stay_symbolic():
    def split(x):
        return OPS.split_rows(x, [1, x.shape[0] - 1])

    graph = make_fx(split, tracing_mode="symbolic")(torch.randn(3, 4))
    assert [y.shape[0] for y in graph(torch.randn(7, 4))] == [1, 6]


def test_numbers_are_drawn_as_opdocks_own_functions_draw_them():
    x = torch.ones(50)
    torch.manual_seed(5)
    wanted = [opdock.ops.dropout(x)[0] for _ in range(2)]
    torch.manual_seed(5)
    found = [OPS.dropout(x)[0], opdock.ops.dropout(x)[0]]
    assert all(map(torch.equal, found, wanted)) and not torch.equal(*wanted)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: OPS.softmax(x),
        lambda x: OPS.linear(x, x.t(), None, activation="relu"),
        lambda x: OPS.linear(x, x.t(), None, activation="none of these"),
        lambda x: OPS.bias_add_layer_norm(x, x, x[0], with_sum=False),
        lambda x: OPS.split_rows_backward([x[:1], x[1:]], x),
        lambda x: OPS.split_rows_backward([x[:1].requires_grad_(), x[1:]], x),
        lambda x: OPS.split_rows_backward([x[:1].to_sparse(), x[1:]], x),
        lambda x: OPS.softmax(x.requires_grad_()),
    ],
)
def test_no_call_keeps_its_arguments(call):
    x = torch.randn(4, 4)
    try:
        call(x)
    except opdock.OpdockError as error:
        error.__traceback__ = None
    found = weakref.ref(x.untyped_storage())
    data = weakref.ref(x)
    del x
    assert data() is None and found() is None


def test_an_exception_of_the_kernel_in_python_is_the_same_object():
    with pytest.raises(opdock.UnsupportedError) as caught:
        OPS.adam_([torch.ones(1, requires_grad=True)], *[[torch.rand(1)]] * 3, torch.tensor(0.0))
    names = [Path(str(entry.path)).name for entry in caught.traceback]
    assert "_autograd.py" in names  # the traceback leads to where it was raised


def test_the_library_writes_the_same_schemas():
    compared = 0
    for name, op in _register._ops.items():
        found = _opdock.torch_schema(op.function, name)
        if found:
            assert found == schema(name, op.function)
            compared += 1
    assert compared > 40


FALLBACK = """
import opdock
from opdock import _opdock
{patch}
import torch, opdock.torch
from opdock.torch import _library
assert not _library.has_guard()
ops = torch.ops.opdock
x = torch.randn(3, 8, requires_grad=True)
ops.softmax(x, 0.5).square().sum().backward()
wanted = torch.autograd.grad(torch.softmax(x * 0.5, -1).square().sum(), x)[0]
assert torch.allclose(x.grad, wanted, atol=1e-6)
with torch.no_grad():
    assert torch.allclose(ops.softmax(x), torch.softmax(x, -1))
try:
    ops.layer_norm(torch.ones(2, 4), torch.ones(8)[::2])
except opdock.OpdockError as error:
    assert "wanted contiguous rows" in str(error)
else:
    raise AssertionError
"""


@pytest.mark.parametrize(
    "patch",
    [
        "_opdock.torch_open_library = lambda: 'there is none'",
        "_opdock.torch_set_allowed_keys = lambda keys: False",
    ],
    ids=["without the library", "without its guard"],
)
def test_python_does_what_the_library_cannot(patch):
    run_python(FALLBACK.format(patch=patch))


STABLE = """
import sys
import opdock
from opdock import _opdock
_opdock.torch_open_recorder = lambda *arguments: "there is none"
import torch, opdock.torch
sys.path[:0] = sys.argv[1:]
import operator_examples as examples
from opdock.torch import _library
assert _library.has_guard()
x = torch.randn(2, 8)
calls = [*examples.others(), ("softmax", (x,), {}), ("log_softmax", (x,), {"scale": 0.5})]
calls += [("split_rows", (x, [1, 1]), {}), ("split_rows_backward", ([x[:1], x[1:]], x), {})]
for name, args, keywords in calls:
    given, ours = examples.detached(args), examples.detached(args)
    torch.manual_seed(1)
    found = getattr(torch.ops.opdock, name)(*given, **keywords)
    torch.manual_seed(1)
    wanted = getattr(opdock.ops, name)(*ours, **keywords)
    # An operator returns nothing of what it writes.
    if found is not None and found != []:
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, msg=name)
    torch.testing.assert_close(given, ours, rtol=0, atol=0, msg=name)
torch.manual_seed(1)
first = torch.ops.opdock.dropout(x)
torch.manual_seed(1)
torch.testing.assert_close(opdock.ops.dropout(x), first)
"""


def test_the_stable_interface_serves_where_there_is_no_library_for_this_torch():
    run_python(STABLE, str(Path(__file__).parent), str(ROOT / "tests" / "support"))


def run(command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)


@pytest.mark.skipif(compiler is None, reason="there is no C++ compiler")
def test_the_declarations_are_torchs():
    if not (TORCH / "include" / "torch" / "csrc" / "stable" / "c" / "shim.h").exists():
        pytest.skip("torch has no headers here")
    code = "#include <torch/csrc/stable/c/shim.h>\n#include <torch/shim.h>\n"
    command = [compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    command += [f"-I{TORCH / 'include'}", f"-I{ROOT / 'core'}"]
    done = run(command, input=code)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(compiler is None, reason="there is no C++ compiler")
def test_a_program_without_python(tmp_path):
    program = tmp_path / "program"
    source = Path(__file__).with_name("without_python.cc")
    command = [compiler, "-std=c++20", f"-I{ROOT / 'core'}", source]
    command += ["-o", program, f"-L{TORCH / 'lib'}", f"-Wl,-rpath,{TORCH / 'lib'}"]
    command += ["-ltorch_cpu", "-lc10", "-ldl", "-Wl,--allow-shlib-undefined"]
    done = run(command)
    assert done.returncode == 0, done.stderr
    library = Path(os.environ["OPDOCK_BUILD_DIR"]) / "core" / "libopdock_torch.so"
    x = torch.arange(4.0).square().reshape(2, 2)
    for what in (0, 3):
        done = run([program, library, what])
        assert done.returncode == 0, done.stderr
        found = torch.tensor([float(line) for line in done.stdout.split()]).reshape(2, 2)
        torch.testing.assert_close(found, torch.softmax(x * 0.5, -1), atol=1e-5, rtol=0)
    done = run([program, library, 2])
    assert done.returncode == 0, done.stderr
    first, second = (set(line.split()) for line in done.stdout.splitlines())
    assert first == second == {"0", "2"} and len(set(done.stdout.splitlines())) == 2
    done = run([program, library, 1])
    assert done.returncode == 1
    if done.stderr.strip() != "no text":
        assert "softmax(): argument 'x': found a tensor that requires a gradient" in done.stderr
