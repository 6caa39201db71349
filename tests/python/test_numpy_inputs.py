# SPDX-License-Identifier: Apache-2.0
"""Tests NumPy arrays: results, and every kind that must be refused by name."""

import numpy as np
import pytest

import opdock

DTYPES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
DTYPES += ["bool", "float16", "float32", "float64", "complex64", "complex128"]
DTYPES += ["longlong", "ulonglong", "intp"]


def layouts(x):
    """Yields views of a matrix with every kind of strides that NumPy has."""
    yield "row-major", x
    yield "transposed", x.T
    yield "backwards", x[::-1, ::-1]
    yield "every other column", x[:, ::2]
    yield "column", x[:, 1]
    yield "broadcast", np.broadcast_to(x[0], (3, 4))
    yield "scalar", x[0, 0:1].reshape(())
    yield "empty", x[:0]
    yield "many dimensions", x.reshape((1,) * 14 + (3, 4))


@pytest.mark.parametrize("dtype", DTYPES)
def test_copies_equal(ops, dtype):
    x = np.arange(12).reshape(3, 4).astype(dtype)
    for name, view in layouts(x):
        copy = ops.py_copy(view)
        assert type(copy) is np.ndarray and copy.dtype == x.dtype, name
        np.testing.assert_array_equal(copy, view, err_msg=name)
        assert copy.flags.c_contiguous and copy.flags.owndata, name


def test_bfloat16_by_ml_dtypes(ops):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    x = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    copy = ops.py_copy(x.T)
    assert copy.dtype == x.dtype
    np.testing.assert_array_equal(copy.astype(np.float32), x.T.astype(np.float32))
    with pytest.raises(opdock.OpdockError, match="float8_e5m2"):
        ops.py_copy(np.zeros(2, ml_dtypes.float8_e5m2))
    with pytest.raises(opdock.OpdockError, match="int4"):
        ops.noop(np.zeros(2, ml_dtypes.int4))


def _read_only():
    x = np.zeros(3, np.float32)
    x.flags.writeable = False
    return x


REFUSED = {
    "big-endian": (lambda: np.zeros(3, ">f4"), "dtype >f4", "astype"),
    "object": (lambda: np.zeros(3, "O"), "dtype object", "astype"),
    "long double": (lambda: np.zeros(3, np.longdouble), "dtype float128", "astype"),
    "complex long double": (lambda: np.zeros(3, np.clongdouble), "dtype complex256", "astype"),
    "bytes": (lambda: np.zeros(3, "S4"), "dtype |S4", "astype"),
    "text": (lambda: np.zeros(3, "U4"), "dtype <U4", "astype"),
    "date": (lambda: np.zeros(3, "M8[s]"), "dtype datetime64[s]", "astype"),
    "record": (lambda: np.zeros(3, [("a", "f4")]), "dtype [('a'", "astype"),
    "odd stride": (
        lambda: np.ndarray((3,), np.float32, np.zeros(32, np.uint8), 0, (6,)),
        "stride of 6 bytes",
        "ascontiguousarray",
    ),
    "misaligned": (
        lambda: np.ndarray((3,), np.float32, np.zeros(32, np.uint8), 1),
        "misaligned",
        "copy",
    ),
    "masked": (lambda: np.ma.masked_array(np.zeros(3), [1, 0, 0]), "MaskedArray", "asarray"),
    "matrix": (lambda: np.asmatrix(np.zeros((2, 2))), "matrix", "asarray"),
    "too many dimensions": (lambda: np.zeros((1,) * 17), "17 dimensions", "reshape"),
}


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(ops, case):
    make, what, advice = REFUSED[case]
    if "long double" in case and np.dtype(np.longdouble).itemsize != 16:
        pytest.skip("long double is no wider than double here")
    ops.noop(np.zeros(3, np.float32))  # the fast path now knows its dtype
    with pytest.raises(opdock.OpdockError) as caught:
        ops.noop(make())
    text = str(caught.value)
    assert "noop(): argument 'x'" in text and what in text and advice in text


def test_a_stride_nobody_steps_over_does_not_matter(ops):
    odd = np.ndarray((1, 2), np.float32, np.arange(16, dtype=np.uint8), 0, (7, 4))
    np.testing.assert_array_equal(ops.py_copy(odd), odd)


def test_read_only_arrays_are_read_and_not_written(ops):
    x = _read_only()
    np.testing.assert_array_equal(ops.py_copy(x), x)
    with pytest.raises(opdock.InvalidArgumentError, match="a read-only numpy.ndarray"):
        ops.py_add_(x)
    for call in (lambda: ops.py_add_(x), lambda: ops.py_copy(np.ones(3, np.float32), out=x)):
        with pytest.raises(opdock.InvalidArgumentError, match="read-only"):
            call()
    assert x.tolist() == [0, 0, 0]


def test_memmap_is_an_array(ops, tmp_path):
    path = tmp_path / "x"
    np.arange(5, dtype=np.float32).tofile(path)
    x = np.memmap(path, np.float32)
    copy = ops.py_copy(x)
    assert type(copy) is np.ndarray and copy.tolist() == [0, 1, 2, 3, 4]


def test_in_place_by_strides(ops):
    x = np.zeros((2, 4), np.float32)
    assert ops.py_add_(x[:, ::-2], by=1.5).base is not None
    assert x.tolist() == [[0, 1.5, 0, 1.5]] * 2


def test_arrays_are_read_where_they_lie():
    assert opdock._opdock._numpy_layout_holds()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3), (0,)])
def test_empty_arrays_are_taken_whatever_their_strides(ops, shape):
    """NumPy gives them strides of 0, and slices of them any strides."""
    plain = np.ones(shape, np.float32)
    zero = np.lib.stride_tricks.as_strided(plain, shape, (0,) * len(shape))
    odd = np.lib.stride_tricks.as_strided(plain, shape, (52,) * len(shape))
    weight = np.ones(shape[-1:], np.float32)
    for x in (plain, zero, odd, np.empty(shape, np.float32, order="F")):
        for result in (ops.softmax(x), ops.layer_norm(x, weight, weight), ops.py_copy(x)):
            assert result.shape == shape and result.dtype == np.float32
        assert ops.softmax(x, out=np.empty(shape, np.float32)).shape == shape
