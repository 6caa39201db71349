# SPDX-License-Identifier: Apache-2.0
"""Tests results that are more than one array each, objects, and arguments that ops keep."""

import gc
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import opdock

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_result_of_each_kind(ops):
    count, pieces, half, copy, some, box = ops.py_kinds(X, [2, 0, 3], True)
    assert (count, half, some) == (3, 0.5, True) and type(count) is int and type(some) is bool
    assert [piece.tolist() for piece in pieces] == [[0, 0], [], [0, 0, 0]]
    np.testing.assert_array_equal(copy, X)
    assert ops.py_look(box) == 6
    assert ops.py_count(X) == 6


def test_what_is_not_there_is_none_and_a_list_may_be_empty(ops):
    count, pieces, _, copy, some, _ = ops.py_kinds(X, [], False)
    assert (count, pieces, copy, some) == (0, [], None, False)
    many = ops.py_kinds(X, [1] * 1000, False)[1]
    assert len(many) == 1000 and all(piece.shape == (1,) for piece in many)


def test_results_are_of_the_arguments_library(ops, torch):
    results = ops.py_kinds(torch.from_numpy(X.copy()), [2, 3], True)
    assert [type(piece) for piece in results[1]] == [torch.Tensor] * 2
    assert torch.equal(results[3], torch.from_numpy(X))


def test_a_variable_number_of_results_takes_no_out(ops):
    with pytest.raises(opdock.ArgumentError, match="named 'out'"):
        ops.py_kinds(X, [1], False, out=[X])
    assert "out" not in ops.py_kinds.__signature__.parameters
    assert "list[Array]" in ops.py_kinds.__signature__.return_annotation


def test_an_object_says_what_it_is_and_goes_with_its_last_reference(ops):
    before = ops.py_boxes()
    box = ops.py_kinds(X, [], False)[5]
    assert (box.type, box.version, box.device) == ("py_box", 3, "cpu")
    assert type(box) is opdock.Object and repr(box) == "<opdock object py_box 3 on cpu>"
    other = box
    assert ops.py_boxes() == before + 1
    del box
    assert ops.py_look(other, [other, other]) == 18
    del other
    assert ops.py_boxes() == before
    with pytest.raises(TypeError):
        opdock.Object()


def test_objects_are_taken_by_their_type(ops):
    box, kept = ops.py_kinds(X, [], False)[5], ops.py_keep(X)
    with pytest.raises(
        opdock.InvalidArgumentError, match=r"of type py_kept, wanted Object\(py_box\)"
    ):
        ops.py_look(kept)
    with pytest.raises(
        opdock.ArgumentError, match="found an object of type int, wanted an opdock.Object"
    ):
        ops.py_look(3)
    with pytest.raises(opdock.InvalidArgumentError, match="element 1"):
        ops.py_look(box, [box, kept])


def test_an_object_lives_as_long_as_any_thread_holds_it(ops):
    before = ops.py_boxes()
    box = ops.py_kinds(X, [], False)[5]
    threads = [
        threading.Thread(target=lambda b=box: [ops.py_look(b) for _ in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    del box
    for thread in threads:
        thread.join()
    del threads, thread
    assert ops.py_boxes() == before


def _gone(reference):
    """Returns whether the object is freed, once Python has had time to release what another thread
    has given back."""
    for _ in range(200):
        if reference() is None:
            return True
        time.sleep(0.005)
    return False


class _Array(np.ndarray):
    """An array that supports weak references."""


def test_an_argument_is_kept_until_the_op_lets_go(ops):
    x = np.zeros(3, np.float32)
    count = sys.getrefcount(x)
    kept = ops.py_keep(x, [x, np.ones(2, np.float32)])
    assert sys.getrefcount(x) == count + 2
    del kept  # released by a thread of the plugin, which never takes the GIL
    for _ in range(200):
        if sys.getrefcount(x) == count:
            break
        time.sleep(0.005)
    assert sys.getrefcount(x) == count


def test_what_nobody_else_holds_is_kept_too(ops, torch):
    x = torch.zeros(3)
    reference = weakref.ref(x)
    kept = ops.py_keep(x)
    del x
    gc.collect()
    assert reference() is not None
    del kept
    assert _gone(reference)


def test_letting_go_waits_for_nobody_who_has_the_gil(ops):
    # The plugin's destructor waits for its thread with the GIL released; another thread takes the
    # GIL.
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            pass

    spinning = threading.Thread(target=spin)
    spinning.start()
    try:
        for _ in range(50):
            ops.py_keep(np.zeros(3, np.float32))
    finally:
        stop.set()
        spinning.join()
