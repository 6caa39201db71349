# SPDX-License-Identifier: Apache-2.0
"""Tests donated arguments of opdock.fuse(): which results take their memory, and which must not."""

import numpy as np
import pytest

import opdock

F32 = np.float32


def ramp(*shape, dtype=F32):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def test_the_result_is_the_donated_array():
    scaled = opdock.fuse(lambda x, y: x * 2 + y, donate="x")
    x, y = ramp(3, 4), np.ones(4, F32)
    wanted = x * 2 + y
    found = scaled(x, y)
    assert found is x
    np.testing.assert_array_equal(x, wanted)
    np.testing.assert_array_equal(y, 1)
    # By name, for other shapes, and where the same array is read twice.
    x = ramp(5)
    assert scaled(y=x, x=x) is x
    np.testing.assert_array_equal(x, ramp(5) * 3)


def test_each_result_takes_an_array_of_its_own():
    @opdock.fuse(donate=("p", "m"))
    def step(p, grad, m):
        m = 0.5 * m + grad
        return p - m, m, m > 0

    p, grad, m = ramp(4), np.ones(4, F32), ramp(4)
    first, second, third = step(p, grad, m)
    assert first is p and second is m and third.dtype == bool
    np.testing.assert_array_equal(m, 0.5 * ramp(4) + 1)
    np.testing.assert_array_equal(p, ramp(4) - m)
    assert third.all()


def test_donated_arrays_in_lists_and_dicts():
    f = opdock.fuse(lambda xs, y: [xs[0] + y["b"], xs[1] * y["b"]], donate=["xs"])
    xs, y = [ramp(3), ramp(2, 2)], {"b": F32(2)}
    found = f(xs, y)
    assert found[0] is xs[0] and found[1] is xs[1]
    np.testing.assert_array_equal(xs[1], ramp(2, 2) * 2)


@pytest.mark.parametrize(
    ("function", "x", "others"),
    [
        (lambda x: x > 1, ramp(4), ()),  # another dtype
        (lambda x: x.sum(-1), ramp(4, 4), ()),  # another shape
        (lambda x: x.sum(-1, keepdims=True), ramp(4, 1), ()),  # a value of each row
        (lambda x, y: x + y, ramp(4), (ramp(2, 4),)),  # broadcast to another shape
        (lambda x: x * 2, ramp(4, 8)[:, ::2], ()),  # not contiguous
        (lambda x: (x * 2, x), ramp(4), ()),  # returned as well
        (lambda x: (x * 2, x[None]), ramp(4), ()),  # a view of it is returned
        (lambda x: x + x.T, ramp(4, 4), ()),  # a view of it is read
        (lambda x: x[::1] * 2, ramp(4), ()),  # only a view of it is read
        (lambda x, y: y * 2, ramp(4), (ramp(4),)),  # not read
        (lambda x, y: (y * x).sum(-1), ramp(4), (ramp(4, 4),)),  # all rows read it
    ],
)
def test_what_does_not_fit_stays(function, x, others):
    before = x.copy()
    wanted = function(x, *others)
    found = opdock.fuse(function, donate="x")(x, *others)
    for one, want in zip(np.atleast_1d(found) if type(found) is not tuple else found,
                         np.atleast_1d(wanted) if type(wanted) is not tuple else wanted,
                         strict=True):  # fmt: skip
        np.testing.assert_array_equal(one, want)
    if type(found) is not tuple:
        assert not np.shares_memory(found, x)
    np.testing.assert_array_equal(x, before)


def test_a_kernel_before_another_that_reads_the_array_does_not_take_it():
    # Two shapes, so that there are two kernels, of which the second may take what both read.
    f = opdock.fuse(lambda x, y: (x + 1, y + x), donate=("x", "y"))
    x, y = ramp(4), ramp(2, 4)
    first, second = f(x, y)
    assert first is not x and second is y
    np.testing.assert_array_equal(first, ramp(4) + 1)
    np.testing.assert_array_equal(second, ramp(2, 4) + ramp(4))


def test_an_array_that_cannot_be_written_stays():
    x = ramp(4)
    x.flags.writeable = False
    found = opdock.fuse(lambda x: x + 1, donate="x")(x)
    assert found is not x
    np.testing.assert_array_equal(x, ramp(4))


def test_out_comes_before_donated_arrays():
    x, out = ramp(4), np.empty(4, F32)
    assert opdock.fuse(lambda x: x + 1, donate="x")(x, out=out) is out
    np.testing.assert_array_equal(x, ramp(4))


def test_an_array_that_is_donated_twice_is_refused():
    x = ramp(4)
    with pytest.raises(opdock.InvalidArgumentError, match="memory shared with output 0"):
        opdock.fuse(lambda x, y: (x + 1, y + 2), donate=("x", "y"))(x, x)


def test_an_unknown_name_is_an_error():
    with pytest.raises(
        opdock.ArgumentError, match="found donate='z', wanted a parameter's name.*x, y"
    ):
        opdock.fuse(lambda x, y: x + y, donate="z")


def test_torch_tensors():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    f = opdock.fuse(lambda x, y: x * 2 + y, donate="x")
    x, y = torch.arange(4.0), torch.ones(4)
    assert f(x, y) is x
    assert x.tolist() == [1, 3, 5, 7]
    # A tensor that autograd records must stay, and so must a parameter and an expanded tensor.
    x = torch.arange(4.0, requires_grad=True)
    f(x, y).sum().backward()
    assert x.tolist() == [0, 1, 2, 3] and x.grad.tolist() == [2] * 4
    x, weight = torch.arange(4.0), torch.ones(4, requires_grad=True)
    f(x, weight).sum().backward()
    assert x.tolist() == [0, 1, 2, 3] and weight.grad.tolist() == [1] * 4
    weight = torch.nn.Parameter(torch.arange(4.0))
    with torch.no_grad():
        assert f(weight, y) is not weight
    assert weight.tolist() == [0, 1, 2, 3]
    wide = torch.ones(1).expand(4)
    assert f(wide, y).tolist() == [3] * 4 and wide.tolist() == [1] * 4
    half = torch.arange(4.0, dtype=torch.bfloat16)
    assert f(half, torch.ones((), dtype=torch.bfloat16)) is half
