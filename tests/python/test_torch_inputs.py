# SPDX-License-Identifier: Apache-2.0
"""Tests torch tensors: results, and every trap that the raw path would read wrongly."""

import os
import threading

import numpy as np
import pytest
from conftest import torch_programs

import opdock
from opdock import _opdock

torch = pytest.importorskip("torch", reason="torch is not installed")

DTYPES = [
    torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16,
    torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.complex128,
]  # fmt: skip


def layouts(x):
    """Yields views of a matrix with every kind of strides that torch has."""
    yield "row-major", x
    yield "transposed", x.t()
    yield "row-strided", x[:, :2]
    yield "column", x[:, 1]
    yield "offset", x[1:]
    yield "expanded", x[:1].expand(4, -1)
    yield "scalar", x[0, 0]
    yield "empty", x[:0]
    yield "many dimensions", x.reshape((1,) * 14 + (3, 4))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_equal(ops, dtype):
    x = torch.arange(12).reshape(3, 4).to(dtype)
    for name, view in layouts(x):
        copy = ops.py_copy(view)
        assert type(copy) is torch.Tensor and copy.dtype == dtype, name
        assert torch.equal(copy, view), name
        assert copy.is_contiguous() and copy.data_ptr() != view.data_ptr() or not view.numel(), name


def test_writing_in_place_raises_the_version(ops):
    x = torch.zeros(3)
    version = x._version
    assert ops.py_add_(x, by=2) is x
    assert x.tolist() == [2, 2, 2] and x._version == version + 1
    out = torch.zeros(3)
    ops.py_copy(x, out=out)
    assert out._version == 1 and torch.equal(out, x)
    # This is how autograd notices that a value it saved is gone.
    w = torch.ones(3, requires_grad=True)
    saved = torch.ones(3)
    loss = (w * saved).sum()
    ops.py_add_(saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_torch_arguments(ops):
    x = torch.ones(2)
    shown = ops.py_show(x, d=torch.bfloat16, dev=torch.device("cpu"), y=x, xs=[x, x])
    assert type(shown) is torch.Tensor
    assert shown[7:11].tolist() == [4, 16, 1, 0] and shown[12:14].tolist() == [2, 4]
    assert ops.py_show(x, d=torch.float8_e4m3fn)[7:9].tolist() == [10, 8]
    assert ops.py_show(x, dev=torch.device("cuda", 2))[9:11].tolist() == [2, 2]


def _conjugate():
    return torch.ones(2, dtype=torch.complex64).conj()


def _jagged():
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


def _fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


class _Wrapper(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class _Scaled(torch.Tensor):
    """Represents data * scale, only through __torch_function__."""

    scale = 100.0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        plain = [a.as_subclass(torch.Tensor) * a.scale if isinstance(a, cls) else a for a in args]
        return function(*plain, **(kwargs or {}))


class _StillScaled(_Scaled):
    """Inherits __torch_function__."""


TRAPS = {
    "conjugate": (_conjugate, "conjugate bit", "resolve_conj"),
    "negative": (lambda: _conjugate().imag, "negative bit", "resolve_neg"),
    "negative view": (lambda: torch._neg_view(torch.ones(2)), "negative bit", "resolve_neg"),
    "all-zero": (lambda: torch._efficientzerotensor(3), "no memory", "clone"),
    "functionalised": (lambda: torch._to_functional_tensor(torch.ones(2)), "functional", "outside"),
    "requires grad": (lambda: torch.ones(2, requires_grad=True), "differentiation", "detach"),
    "has a gradient": (
        lambda: torch.ones(2, requires_grad=True) * 2,
        "differentiation",
        "torch.no_grad",
    ),
    "parameter": (lambda: torch.nn.Parameter(torch.ones(2)), "differentiation", "detach"),
    "view of a parameter": (
        lambda: torch.nn.Parameter(torch.ones(2))[:1],
        "differentiation",
        "detach",
    ),
    "fake": (_fake, "FakeTensor", "plain torch.Tensor"),
    "wrapper": (lambda: torch.ones(2).as_subclass(_Wrapper), "Wrapper", "plain torch.Tensor"),
    "meaning": (lambda: torch.ones(2).as_subclass(_Scaled), "another meaning", "as_subclass"),
    "inherited meaning": (
        lambda: torch.ones(2).as_subclass(_StillScaled),
        "another meaning",
        "as_subclass",
    ),
    "jagged": (_jagged, "NestedTensor", "plain torch.Tensor"),
    "sparse": (lambda: torch.eye(2).to_sparse(), "sparse", "to_dense"),
    "compressed": (lambda: torch.eye(2).to_sparse_csr(), "sparse", "to_dense"),
    "meta": (lambda: torch.ones(2, device="meta"), "meta", "real device"),
    "quantised": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        "quantised",
        "dequantize",
    ),
    "too many dimensions": (lambda: torch.ones((1,) * 17), "17 dimensions", "reshape"),
}


@pytest.fixture(params=["found", "not found"])
def probe(request):
    """The traps are refused both if torch's key set was found in memory and if torch is asked each
    time."""
    from opdock import _opdock

    opdock.ops.noop(torch.ones(1))
    if request.param == "not found":
        restore = _opdock._torch_probe()
        _opdock._set_torch_probe(-1, -1, -1)
        yield
        _opdock._set_torch_probe(*restore)
    else:
        yield


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trap", TRAPS)
def test_traps_are_refused(ops, probe, trap):
    make, what, advice = TRAPS[trap]
    x = make()
    for _ in range(2):  # the second time from the cached result
        with pytest.raises(opdock.OpdockError) as caught:
            ops.noop(x)
        text = str(caught.value)
        assert "noop(): argument 'x'" in text and what in text and advice in text
    ops.noop(torch.ones(2))


@pytest.mark.parametrize("transform", ["vmap", "functionalize", "grad"])
def test_transforms_are_refused(ops, probe, transform):
    def loss(x):
        ops.noop(x)
        return x.sum()

    with pytest.raises(opdock.OpdockError, match="argument 'x'"):
        getattr(torch.func, transform)(loss)(torch.ones(2, 2))


def _added(call):
    def function(a):
        return a + call(a)

    return function


def _trace(function, x):
    return torch.jit.trace(function, (x,), check_trace=False)


def _real_proxies(function, x):
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function, tracing_mode="real")(x)


def _dispatched_proxies(function, x):
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function, tracing_mode="real", pre_dispatch=True)(x)


RECORDERS = {
    "trace": (_trace, "torch.jit.trace"),
    "make_fx": (_real_proxies, "make_fx"),
    "make_fx before dispatch": (_dispatched_proxies, "make_fx"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recorder", RECORDERS)
def test_recording_is_refused(ops, probe, recorder):
    """Otherwise the recording would contain the results of its example as constants."""
    record, name = RECORDERS[recorder]
    calls = {
        "by position": lambda a: ops.py_copy(a),
        "by name": lambda a: ops.py_copy(x=a),
        "in place": lambda a: (ops.py_add_(a), a + 1)[1],
        "into a tensor": lambda a: ops.py_copy(np.ones(2, np.float32), out=a),
        "in a list": lambda a: ops.py_show(np.ones(2, np.float32), xs=[a]),
    }
    for call in calls.values():
        with pytest.raises(opdock.InvalidArgumentError, match=rf"py_\w+\(\).*{name}"):
            record(_added(call), torch.ones(2))
    assert ops.py_copy(torch.ones(2)).tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recorder", ["trace", "make_fx"])
def test_what_is_called_beside_a_record(ops, probe, recorder):
    """Calls are allowed in a torch operator that calls the op, as the refusal advises, and in
    another thread."""
    found = []

    @torch.library.custom_op("pytests::copy_of", mutates_args=())
    def copy_of(x: torch.Tensor) -> torch.Tensor:
        return ops.py_copy(x)

    @copy_of.register_fake
    def _(x):
        return torch.empty_like(x)

    def function(a):
        thread = threading.Thread(target=lambda: found.append(ops.py_copy(torch.ones(1)).item()))
        thread.start()
        thread.join()
        return a + copy_of(a)

    made = RECORDERS[recorder][0](function, torch.ones(2))
    assert made(torch.full((2,), 3.0)).tolist() == [6, 6] and found == [1]


def test_how_a_record_is_noticed_is_known_here():
    """The recording keys are known, so that torch is not asked in each call."""
    from opdock import _opdock

    opdock.ops.noop(torch.ones(1))
    assert _opdock._torch_recording_keys().bit_count() == 3


def test_a_tensor_of_inference_mode_is_written_only_there(ops, probe):
    """torch's own in-place operators refuse it too."""
    with torch.inference_mode():
        x, theirs = torch.zeros(2), torch.zeros(2)
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        theirs.add_(1)
    for call in (lambda: ops.py_add_(x), lambda: ops.py_copy(torch.ones(2), out=x)):
        for _ in range(2):
            with pytest.raises(opdock.InvalidArgumentError, match="inference mode.*clone"):
                call()
    assert x.tolist() == [0, 0] and ops.py_copy(x).tolist() == [0, 0]
    y = torch.zeros(2)
    with torch.inference_mode():
        ops.py_add_(x)
        ops.py_add_(y)
    assert x.tolist() == y.tolist() == [1, 1]


def test_forward_mode_is_refused(ops, probe):
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(2), torch.ones(2))
        for enabled in (True, False):
            with torch.set_grad_enabled(enabled), pytest.raises(ValueError, match="differentia"):
                ops.noop(dual)
        ops.noop(torch.ones(2, requires_grad=True).detach())


def test_what_is_no_trap(ops, probe):
    parameter = torch.nn.Parameter(torch.arange(4.0))
    with torch.no_grad():
        assert torch.equal(ops.py_copy(parameter), parameter)
        assert not ops.py_copy(parameter).requires_grad
        assert torch.equal(ops.py_copy(parameter[1:]), parameter[1:])
    with torch.inference_mode():
        x = torch.arange(3.0)
        assert torch.equal(ops.py_copy(x), x) and torch.equal(ops.py_copy(x.t()), x)
        ops.py_add_(x)
    assert ops.py_copy(x).tolist() == [1, 2, 3]
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    assert torch.equal(ops.py_copy(frozen), frozen)
    conj = _conjugate()
    assert torch.equal(ops.py_copy(conj.resolve_conj()), conj)


def test_the_key_set_is_found_here():
    from opdock import _opdock

    opdock.ops.noop(torch.ones(1))
    impl, keys, grad = _opdock._torch_probe()
    assert impl > 0 and keys > 0 and grad > 0


def test_calibration_inside_modes():
    """The process may meet its first tensor under modes that change what torch.empty returns."""
    program = """
import torch, opdock
from torch._subclasses.fake_tensor import FakeTensorMode
plain = torch.ones(2)
torch.set_default_dtype(torch.float64)
with torch.device("meta"), torch.inference_mode(), FakeTensorMode(allow_non_fake_inputs=True):
    opdock.ops.noop(plain)
found = opdock._opdock._torch_probe()
assert min(found) > 0, found
"""
    done = torch_programs().run(program, os.environ)
    assert done.returncode == 0, done.stderr


def test_the_first_tensor_waits_for_no_module_of_torch():
    """The modules of torch's fake tensors would take a millisecond of the first call."""
    program = """
import sys
import torch, opdock
before = set(sys.modules)
opdock.formula("x + 1")(torch.ones(2))
print(*sorted(x for x in set(sys.modules) - before if x.startswith("torch._subclasses")))
"""
    done = torch_programs().run(program, os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_four_bit_pairs_keep_their_lanes(ops):
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no float4_e2m1fn_x2")
    pairs = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with pytest.raises(opdock.OpdockError, match="'?x'?.*float4|float4.*'?x'?"):
        ops.py_copy(pairs)


def test_a_dtype_the_op_does_not_take(ops):
    with pytest.raises(opdock.OpdockError, match="float8"):
        ops.py_copy(torch.zeros(4, dtype=torch.float8_e4m3fn))


def test_a_subclass_without_dispatch_is_a_tensor(ops):
    class Named(torch.Tensor):
        pass

    copy = ops.py_copy(torch.arange(3.0).as_subclass(Named))
    assert copy.tolist() == [0, 1, 2]


def test_threads_with_gradients_off_and_on(ops):
    x = torch.ones(4, requires_grad=True)
    wrong = []

    def work(enabled):
        with torch.set_grad_enabled(enabled):
            for _ in range(200):
                try:
                    ops.noop(x)
                    refused = False
                except ValueError:
                    refused = True
                if refused != enabled:
                    wrong.append(enabled)

    threads = [threading.Thread(target=work, args=(bool(i % 2),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    "setting, value, allowed",
    [
        ("allow_tf32", True, True),
        ("allow_tf32", False, False),
        ("precision", "high", True),
        ("precision", "highest", False),
    ],
)
def test_tf32_is_allowed_as_torch_allows_it(setting, value, allowed):
    before = torch.get_float32_matmul_precision()
    try:
        if setting == "precision":
            torch.set_float32_matmul_precision(value)
        else:
            torch.backends.cuda.matmul.allow_tf32 = value
        assert _opdock._torch_allows_tf32() is allowed
    finally:
        torch.set_float32_matmul_precision(before)


def test_equal_bits_are_wanted_as_torch_or_configure_says():
    assert not _opdock._wants_deterministic(True) and not _opdock._wants_deterministic(False)
    torch.use_deterministic_algorithms(True)
    try:
        assert _opdock._wants_deterministic(True) and not _opdock._wants_deterministic(False)
    finally:
        torch.use_deterministic_algorithms(False)
    opdock.configure(deterministic=True)
    try:
        assert _opdock._wants_deterministic(False) and not _opdock._wants_deterministic(True)
    finally:
        opdock.configure()
    assert not _opdock._wants_deterministic(False)


def test_numpy_and_torch_mix(ops):
    x = torch.arange(3.0)
    shown = ops.py_show(x, y=np.ones(5, np.float32), xs=[np.ones(2, np.float32), x])
    assert type(shown) is torch.Tensor and shown[12:14].tolist() == [5, 5]


def test_strides_that_do_not_fit_are_refused_in_torchs_words(ops):
    with pytest.raises(opdock.UnsupportedError) as caught:
        ops.softmax(torch.ones(2, 3).t())
    text = str(caught.value)
    assert "'x': found strides [1, 3]" in text and text.endswith("; pass ….contiguous()")


def test_empty_tensors_are_taken_whatever_their_strides(ops):
    for x in (torch.ones(0, 3), torch.ones(3, 0).t(), torch.ones(2, 0, 3).transpose(0, 2)):
        assert ops.softmax(x).shape == x.shape
        assert ops.py_copy(x).shape == x.shape
