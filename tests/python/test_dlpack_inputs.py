# SPDX-License-Identifier: Apache-2.0
"""Tests arrays that support only __dlpack__: JAX, and exporters made for the tests."""

import gc
import weakref

import numpy as np
import pytest

import opdock


class Box:
    """Exports a NumPy array by the protocol, and records how it was asked."""

    def __init__(self, array, versioned=True):
        self.array = array
        self.versioned = versioned
        self.asked = []

    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked.append((stream, max_version))
        return self.array.__dlpack__(max_version=max_version if self.versioned else None)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array_namespace__(self):
        return np


class OldBox(Box):
    """Exports as libraries did before DLPack 1.0."""

    def __dlpack__(self, stream=None):
        self.asked.append((stream, None))
        return self.array.__dlpack__()


@pytest.mark.parametrize("kind", [Box, OldBox])
def test_exporters(ops, kind):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    box = kind(x.T)
    copy = ops.py_copy(box)
    np.testing.assert_array_equal(copy, x.T)
    # On the CPU no stream is passed; the version is passed if the exporter supports it.
    assert box.asked == [(None, (1, 3) if kind is Box else None)]
    assert ops.py_add_(box) is box
    assert x[0, 0] == 1


def test_results_outlive_everything(ops):
    copy = ops.py_copy(Box(np.arange(1000, dtype=np.float64)))
    gc.collect()
    assert copy.sum() == 499500


def test_the_export_is_given_back(ops):
    x = np.zeros(3, np.float32)
    dead = weakref.ref(x)
    box = Box(x)
    ops.py_copy(box)
    del x, box
    gc.collect()
    assert dead() is None


def test_read_only_exports_are_not_written(ops):
    x = np.zeros(3, np.float32)
    x.flags.writeable = False
    np.testing.assert_array_equal(ops.py_copy(Box(x)), x)
    with pytest.raises(opdock.InvalidArgumentError, match="read-only"):
        ops.py_add_(Box(x))


def broken(device=(1, 0), capsule=None, error=None):
    class Broken:
        def __dlpack__(self, **_):
            if error is not None:
                raise error
            return capsule

        def __dlpack_device__(self):
            return device

    return Broken()


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (broken(error=BufferError("strided by magic")), "strided by magic"),
        (broken(capsule=42), "no DLPack capsule"),
        (broken(device=None), "__dlpack_device__"),
        (broken(device=("a", "b")), "__dlpack_device__"),
        (broken(device=(-3, 0)), "__dlpack_device__"),
    ],
)
def test_broken_exporters(ops, thing, words):
    with pytest.raises(opdock.InvalidArgumentError, match=words) as caught:
        ops.noop(thing)
    assert "argument 'x'" in str(caught.value)


def test_the_exporters_error_is_the_cause(ops):
    with pytest.raises(opdock.OpdockError) as caught:
        ops.noop(broken(error=BufferError("why")))
    assert isinstance(caught.value.__cause__, BufferError)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError, GeneratorExit])
def test_what_is_no_failure_of_the_array_passes_as_it_is(ops, kind):
    """Such exceptions are no fault of the array: Ctrl-C while a library waits for its device, the
    program's exit, lack of memory."""

    class Raises:
        def __dlpack__(self, **_):
            raise kind("mine")

        def __dlpack_device__(self):
            return 1, 0

    class RaisesEverywhere(Raises):
        def __dlpack_device__(self):
            raise kind("mine")

        def __index__(self):
            raise kind("mine")

        def __cuda_stream__(self):
            raise kind("mine")

        __float__ = __index__

    class Number:
        __index__ = __float__ = RaisesEverywhere.__index__

    x = np.ones(2, np.float32)
    for call in (
        lambda: ops.noop(Raises()),
        lambda: ops.noop(RaisesEverywhere()),
        lambda: ops.py_draw(x, Number()),
        lambda: ops.py_draw(x, 1, generator=Number()),
        lambda: ops.py_draw(x, 1, generator=(1, Number())),
        lambda: opdock.Generator(Number()),
        lambda: opdock.manual_seed(Number()),
        lambda: ops.py_add_(x, by=Number()),
    ):
        with pytest.raises(kind, match="mine") as caught:
            call()
        assert type(caught.value) is kind


def test_a_used_capsule_is_refused(ops):
    capsule = np.zeros(3).__dlpack__(max_version=(1, 0))
    thing = broken(capsule=capsule)
    ops.noop(thing)
    with pytest.raises(opdock.InvalidArgumentError, match="no DLPack capsule"):
        ops.noop(thing)


def test_a_library_without_from_dlpack(ops):
    class Bare(Box):
        __array_namespace__ = None

    with pytest.raises(TypeError, match="from_dlpack.*out="):
        ops.py_copy(Bare(np.ones(3, np.float32)))
    out = np.empty(3, np.float32)
    assert ops.py_copy(Bare(np.ones(3, np.float32)), out=out) is out
    assert out.tolist() == [1, 1, 1]


@pytest.fixture(scope="module")
def jax():
    """Returns jax with its arrays on the CPU, where the test plugin's ops are, even if it has a
    GPU."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    with jax.default_device(jax.devices("cpu")[0]):
        yield jax


def test_jax(ops, jax):
    x = jax.numpy.arange(6, dtype="float32").reshape(2, 3)
    assert x.__dlpack_device__()[0] == 1
    copy = ops.py_copy(x)
    assert isinstance(copy, jax.Array)
    np.testing.assert_array_equal(np.asarray(copy), np.asarray(x))
    bf16 = jax.numpy.arange(4, dtype="bfloat16")
    assert ops.py_copy(bf16).dtype == bf16.dtype
    assert float((ops.py_copy(x) + 1).sum()) == 21  # JAX computes with the result


def test_jax_arrays_are_not_written(ops, jax):
    x = jax.numpy.zeros(3)
    for call in (lambda: ops.py_add_(x), lambda: ops.py_copy(x, out=x)):
        with pytest.raises(opdock.InvalidArgumentError, match="read-only"):
            call()
    assert x.tolist() == [0, 0, 0]


def test_jax_tracers_are_refused(ops, jax):
    with pytest.raises(opdock.ArgumentError, match="Tracer"):
        jax.jit(lambda x: ops.noop(x))(jax.numpy.zeros(3))


def on_a_gpu(array):
    """Exports the array's memory as if it were on cuda:0: no code may access it."""
    import ctypes

    class Tensor(ctypes.Structure):
        _fields_ = [
            ("data", ctypes.c_void_p),
            ("device", ctypes.c_int32 * 2),
            ("rest", ctypes.c_byte * 32),
        ]

    class Claims(Box):
        def __dlpack__(self, **_):
            capsule = self.array.__dlpack__()
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            tensor = Tensor.from_address(get(capsule, b"dltensor"))
            tensor.device[0], tensor.device[1] = self.__dlpack_device__()
            return capsule

        def __dlpack_device__(self):
            return 2, 0

    return Claims(array)


def test_mixed_devices_name_the_argument(ops):
    x, y = np.ones((2, 3), np.float32), np.ones(2, np.float32)
    with pytest.raises(ValueError, match=r"argument 'y'.*on cuda:0, wanted cpu.*'x'.*move one"):
        ops.py_two(x, on_a_gpu(y))
    with pytest.raises(ValueError, match=r"argument 'y'.*on cpu, wanted cuda:0.*'x'.*move one"):
        ops.py_two(on_a_gpu(x), y)
    with pytest.raises(ValueError, match=r"argument 'weight'.*on cuda:0, wanted cpu.*'x'"):
        ops.layer_norm(x, on_a_gpu(np.ones(3, np.float32)))
    with pytest.raises(opdock.OpdockError, match=r"'out'.*cuda:0.*wanted.*cpu"):
        ops.py_copy(x, out=on_a_gpu(np.ones((2, 3), np.float32)))


# ---- the classification of types


def test_more_array_types_than_anyone_has():
    """Two arguments of new types each: the cache entry of one type must not serve the other."""
    types = [type(f"Box{i}", (Box,), {}) for i in range(5000)]
    x = np.arange(3, dtype=np.float32)
    for kind in types:
        assert opdock.ops.py_copy(kind(x)).tolist() == [0, 1, 2]
    # A NumPy scalar is examined too, to see that it is no array.
    found = opdock.ops.py_show(types[-1](x), f=np.float16(1.5), i=np.int8(4))
    assert isinstance(found, np.ndarray) and found[1:3].tolist() == [4, 1.5]


def test_types_that_go_are_forgotten():
    x = np.arange(3, dtype=np.float32)
    gone = []
    gc.freeze()  # excludes the many long-lived objects from the collections below
    for i in range(300):
        # A type of another kind may get the address of one that was freed.
        kind = type("New", (Box,), {}) if i % 2 == 0 else type("New", (np.ndarray,), {})
        if i % 2 == 0:
            assert opdock.ops.py_copy(kind(x)).tolist() == [0, 1, 2]
        else:
            with pytest.raises(opdock.ArgumentError, match="whose meaning"):
                opdock.ops.py_copy(x.view(kind))
        gone.append(weakref.ref(kind))
        del kind
        gc.collect(0 if i % 10 else 2)
    gc.collect()
    gc.unfreeze()
    assert [reference() for reference in gone if reference() is not None] == []


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        ("cupy", "pass cupy.ascontiguousarray(…)"),
        ("jaxlib._jax", "pass jax.numpy.copy(…)"),
        ("another_library", "make it contiguous first"),
    ],
)
def test_advice_in_the_librarys_own_words(ops, module, advice):
    library = type("Array", (Box,), {"__module__": module})
    with pytest.raises(opdock.UnsupportedError) as caught:
        ops.softmax(library(np.ones((2, 3), np.float32).T))
    text = str(caught.value)
    assert "strides [1, 3]" in text and text.endswith("; " + advice)
