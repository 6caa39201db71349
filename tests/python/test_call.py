# SPDX-License-Identifier: Apache-2.0
"""Tests binding, defaults, results, out= and errors: with NumPy, against what the test plugin
reports."""

import pickle
import threading

import numpy as np
import pytest

import opdock

X = np.ones((2, 3), np.float32)
#: What py_show reports for its defaults; see plugin/pytests.cc.
DEFAULTS = [6, 7, 0.5, 1, 0, 0, 4, 255, 0, -1, -1, 12, -1, 0, -1, -1]
POSITION = dict(x=0, i=1, f=2, b=3, real=4, imag=5, s=6, code=7, bits=8, device=9, index=10)
POSITION |= dict(sizes=11, y=12, xs=13, seed=14, offset=15)


def shown(changes):
    expected = list(DEFAULTS)
    for name, value in changes.items():
        expected[POSITION[name]] = value
    return expected


@pytest.mark.parametrize(
    ("keywords", "changes"),
    [
        ({}, {}),
        ({"i": -(2**63)}, {"i": -(2**63)}),
        ({"i": np.int8(-3)}, {"i": -3}),
        ({"f": 0.25}, {"f": 0.25}),
        ({"f": 3}, {"f": 3}),
        ({"f": np.float16(1.5)}, {"f": 1.5}),
        ({"b": False}, {"b": 0}),
        ({"b": np.bool_(False)}, {"b": 0}),
        ({"c": 1 - 2j}, {"real": 1, "imag": -2}),
        ({"c": 2}, {"real": 2}),
        ({"s": "größe"}, {"s": 7}),
        ({"s": ""}, {"s": 0}),
        ({"d": "bfloat16"}, {"code": 4, "bits": 16}),
        ({"d": np.float64}, {"code": 2, "bits": 64}),
        ({"d": np.dtype("uint8")}, {"code": 1, "bits": 8}),
        ({"dev": "cpu"}, {"device": 1, "index": 0}),
        ({"dev": "cuda:3"}, {"device": 2, "index": 3}),
        ({"dev": (10, 1)}, {"device": 10, "index": 1}),
        ({"sizes": [3, 4, 5]}, {"sizes": 345}),
        ({"sizes": ()}, {"sizes": 0}),
        ({"y": None}, {}),
        ({"y": X}, {"y": 6}),
        ({"xs": [X, X[0], X[:0]]}, {"xs": 9}),
        ({"g": 11}, {"seed": 11, "offset": 0}),
        ({"g": (11, 4)}, {"seed": 11, "offset": 4}),
    ],
)
def test_arguments_arrive(ops, keywords, changes):
    assert ops.py_show(X, **keywords).tolist() == shown(changes)


def test_arguments_by_position_and_by_name(ops):
    assert ops.py_show(X, 5).tolist() == shown({"i": 5})
    assert ops.py_show(i=5, x=X).tolist() == shown({"i": 5})
    # A name that is not interned is compared as text.
    assert ops.py_show(X, **{"".join(["s", "izes"]): [9]}).tolist() == shown({"sizes": 9})


def test_many_tensors_exceed_the_frame(ops):
    many = [np.zeros((1,) * 16, np.float32)] * 200
    assert ops.py_show(X, xs=many).tolist() == shown({"xs": 200})


@pytest.mark.parametrize(
    ("args", "keywords", "words"),
    [
        ((), {}, ["py_show()", "'x'", "missing", "wanted py_show(Tensor x, int i=7, *"]),
        ((X, 1, 2.0), {}, ["3 positional", "at most 2", "by name, such as f=…"]),
        ((X,), {"x": X}, ["'x'", "by position and by name"]),
        ((X,), {"nope": 1}, ["'nope'", "wanted one of", "sizes", "out"]),
        ((X,), {"size": [1]}, ["'size'", "did you mean 'sizes'?"]),
        ((X,), {"XS": [X]}, ["'XS'", "did you mean 'xs'?"]),
        ((X,), {"ouput": X}, ["'ouput'", "did you mean 'out'?"]),
        ((1.0,), {}, ["'x'", "float", "wanted a tensor", "numpy.array"]),
        (([1.0],), {}, ["'x'", "list", "wanted a tensor", "torch.tensor"]),
        (("x",), {}, ["'x'", "type str", "wanted a tensor"]),
        ((None,), {}, ["'x'", "NoneType"]),
        ((X, 1.5), {}, ["'i'", "float", "wanted an int", "pass int("]),
        ((X, True), {}, ["'i'", "bool", "wanted an int"]),
        ((X, np.array(1)), {}, ["'i'", "ndarray", ".item()"]),
        ((X,), {"f": "1"}, ["'f'", "str", "wanted a float", "pass float("]),
        ((X,), {"f": True}, ["'f'", "bool"]),
        ((X,), {"f": np.True_}, ["'f'", "bool"]),
        ((X,), {"f": 1j}, ["'f'", "complex"]),
        ((X,), {"f": np.array(1.0)}, ["'f'", ".item()"]),
        ((X,), {"b": 1}, ["'b'", "int", "wanted a bool"]),
        ((X,), {"c": "1"}, ["'c'", "str"]),
        ((X,), {"s": b"x"}, ["'s'", "bytes", "wanted a str"]),
        ((X,), {"d": "float99"}, ["'d'", "wanted a dtype"]),
        ((X,), {"d": np.dtype(">f4")}, ["'d'", "wanted a dtype"]),
        ((X,), {"d": []}, ["'d'", "list"]),
        ((X,), {"dev": "tpu"}, ["'dev'", "wanted a device"]),
        ((X,), {"dev": "cuda:x"}, ["'dev'", "wanted a device"]),
        ((X,), {"sizes": 3}, ["'sizes'", "int", "wanted a list"]),
        ((X,), {"sizes": [1, "a"]}, ["'sizes'[1]", "str"]),
        ((X,), {"xs": [X, None]}, ["'xs'[1]", "NoneType"]),
        ((X,), {"g": 1.5}, ["'g'", "seed"]),
    ],
)
def test_wrong_arguments_are_named(ops, args, keywords, words):
    with pytest.raises(opdock.ArgumentError) as caught:
        ops.py_show(*args, **keywords)
    assert isinstance(caught.value, TypeError)
    for word in words:
        assert word in str(caught.value)


def test_an_int_beyond_64_bits(ops):
    with pytest.raises(opdock.InvalidArgumentError, match="'i'.*64 bits"):
        ops.py_show(X, 2**63)


def test_what_an_argument_raises_is_the_cause(ops):
    class Odd:
        def __float__(self):
            raise RuntimeError("no number today")

    with pytest.raises(opdock.ArgumentError, match="'f'") as caught:
        ops.py_show(X, f=Odd())
    assert "no number today" in str(caught.value.__cause__)


def test_results_of_several_kinds(ops):
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.full(2, 5, np.float32)
    copy, same, before = ops.py_two(x, y)
    np.testing.assert_array_equal(copy, x)
    assert copy is not x and same is y
    np.testing.assert_array_equal(y, [6, 5])
    np.testing.assert_array_equal(before, [5, 5])
    assert ops.noop(x) is None


def test_out(ops):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = np.zeros((3, 2), np.float32).T  # strides differ from a fresh result's
    assert ops.py_copy(x, out=out) is out
    np.testing.assert_array_equal(out, x)
    assert ops.py_copy(x, out=(out,)) is out
    np.testing.assert_array_equal(ops.py_copy(x, out=None), x)
    y = np.zeros(2, np.float32)
    first, second = np.zeros_like(x), np.ones(2, np.float32)
    results = ops.py_two(x, y, out=(first, second))
    assert results[0] is first and results[1] is y and results[2] is second
    np.testing.assert_array_equal(second, [0, 0])


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (
            np.zeros((3, 3), np.float32),
            ValueError,
            r"py_copy\(\): argument 'out': found .*\[3, 3\].*wanted .*\[2, 3\]",
        ),
        (np.zeros((2, 3), np.float64), ValueError, "'out': found float64.*wanted float32"),
        (np.broadcast_to(np.float32(0), (2, 3)), ValueError, "'out': found a read-only"),
        (1.0, TypeError, "'out'"),
        ((X, X), TypeError, "'out'"),
        ([X], TypeError, "'out'"),
    ],
)
def test_wrong_out(ops, out, error, words):
    with pytest.raises(error, match=words) as caught:
        ops.py_copy(X, out=out)
    assert isinstance(caught.value, opdock.OpdockError)


def test_the_wrong_one_of_several_outs_is_counted(ops):
    x, y = np.ones((2, 3), np.float32), np.zeros(2, np.float32)
    with pytest.raises(ValueError, match=r"py_two\(\): argument 'out'\[1\]: found .*\[5\]"):
        ops.py_two(x, y, out=(np.empty_like(x), np.zeros(5, np.float32)))
    with pytest.raises(ValueError, match="'out': found memory shared with argument 'x'"):
        ops.py_copy(x, out=x)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ("ops.softmax()", TypeError, ["'x' is missing", "wanted softmax(Tensor x, *, float scale"]),
        ("ops.softmax(x, 0.5)", TypeError, ["2 positional", "at most 1", "scale=…"]),
        ("ops.softmax(x, scal=2)", TypeError, ["'scal'", "did you mean 'scale'?"]),
        ("ops.softmax(x, scale=np.ones(1))", TypeError, ["'scale'", "wanted a float", ".item()"]),
        ("ops.softmax(x, causal=1)", TypeError, ["'causal'", "True or False"]),
        ("ops.softmax(x.astype(np.int32))", ValueError, ["'x'", "int32", "wanted float32"]),
        ("ops.softmax(x.T)", ValueError, ["'x'", "strides", "pass numpy.ascontiguousarray(…)"]),
        ("ops.softmax(x, mask=x.astype(float))", ValueError, ["'mask'", "float64", "float32"]),
        ("ops.softmax(x, mask=x[:1, :2])", ValueError, ["'mask'", "[1, 2]", "broadcasts to x's"]),
        ("ops.softmax(x, out=x[:1])", ValueError, ["'out'", "[1, 3]", "[2, 3]"]),
        ("ops.layer_norm(x, x[0, :2])", ValueError, ["'weight'", "[2]", "wanted [3]"]),
        ("ops.layer_norm(x, eps=-1)", ValueError, ["'eps'", "not negative", "1e-5"]),
        ("ops.layer_norm(x, eps='1e-5')", TypeError, ["'eps'", "str", "float(…)"]),
        ("ops.softmx(x)", AttributeError, ["softmx", "did you mean softmax?"]),
        ("opdock.load('softmx')", LookupError, ["softmx", "did you mean softmax?"]),
        ("opdock.load(softmax)", TypeError, ["'name'", "wanted a str"]),
        ("opdock.load('softmax', device='gpu')", TypeError, ["'device'", "'gpu'", "'cuda:0'"]),
    ],
)
def test_what_a_new_user_gets_wrong(ops, call, error, words):
    names = {"opdock": opdock, "ops": ops, "np": np, "x": X, "softmax": ops.softmax}
    accepted = (error, NotImplementedError) if error is ValueError else error
    with pytest.raises(accepted) as caught:
        eval(call, names)
    for word in words:
        assert word in str(caught.value)


def test_an_op_without_results_takes_no_out(ops):
    with pytest.raises(opdock.ArgumentError, match="'out'"):
        ops.noop(X, out=X)


@pytest.mark.parametrize(
    ("status", "error", "builtin"),
    [
        (1, opdock.InvalidArgumentError, ValueError),
        (2, opdock.UnsupportedError, NotImplementedError),
        (3, opdock.OutOfMemoryError, MemoryError),
        (4, opdock.DeviceError, RuntimeError),
        (5, opdock.DeviceLostError, RuntimeError),
        (6, opdock.NotFoundError, LookupError),
        (7, opdock.IncompatibleError, RuntimeError),
        (8, opdock.CancelledError, RuntimeError),
        (9, opdock.InternalError, RuntimeError),
    ],
)
def test_statuses_become_exceptions(ops, status, error, builtin):
    with pytest.raises(error, match="café is closed") as caught:
        ops.py_fail(X, status, "café is closed")
    assert isinstance(caught.value, builtin)
    assert isinstance(caught.value, opdock.OpdockError)
    assert caught.value.reasons == []


def test_a_failed_call_leaks_nothing(ops):
    import tracemalloc

    def fail():
        with pytest.raises(opdock.OpdockError):
            ops.py_copy(X, out=np.zeros((9, 9), np.float32))

    fail()
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    for _ in range(50):
        fail()
    grown = sum(s.size_diff for s in tracemalloc.take_snapshot().compare_to(before, "filename"))
    tracemalloc.stop()
    assert grown < 50_000


def test_functions_pickle_by_name(ops):
    same = pickle.loads(pickle.dumps(ops.py_copy))
    assert same.schema == ops.py_copy.schema
    np.testing.assert_array_equal(same(X), X)


def test_a_blocking_op_lets_other_threads_run(ops):
    # Each of the two calls waits for the other: if one held the GIL, the other could not arrive.
    results = {}

    def meet(who):
        results[who] = ops.py_meet(X, 20_000).item()

    threads = [threading.Thread(target=meet, args=(who,)) for who in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"a": 1, "b": 1}


class Exporter:
    """An array that supports only __dlpack__."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("kind", [np.asarray, Exporter])
def test_large_arrays_let_other_threads_run(ops, kind):
    import sys
    import time

    x = kind(np.zeros((4 << 20,), np.float32))
    out = kind(np.empty((4 << 20,), np.float32))
    stop, ticks = threading.Event(), 0

    def count():
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    # No thread is asked to give up the GIL: only an explicit release frees it.
    sys.setswitchinterval(1000)
    try:
        thread = threading.Thread(target=count)
        thread.start()
        before = ticks
        ops.py_copy(x, out=out)
        during = ticks - before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
    assert during > 0


def test_many_threads_call_one_function(ops):
    errors = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(300):
            x = rng.standard_normal((rng.integers(0, 9), rng.integers(0, 9))).astype(np.float32)
            if not np.array_equal(ops.py_copy(x.T), x.T):
                errors.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
