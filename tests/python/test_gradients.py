# SPDX-License-Identifier: Apache-2.0
"""Tests the gradients that the plugins of this tree declare, on the examples that they bring, and
the check itself (opdock.testing.check_gradients)."""

import importlib.util
import inspect
import re

import numpy as np
import pytest
import tree_plugins

import opdock
from opdock._author.gradients import check as check_function
from opdock.testing import check_gradients

SAMPLES = "gradient_examples.py"


def declared():
    """Yields "plugin/op" of each op that declares a gradient, and of those that have one because
    they are formulas, as far as their plugin has examples."""
    for name, toml in tree_plugins.declared().items():
        shown = {call[0] for call in examples(name)}
        for op in toml["op"]:
            own = op["schema"].partition("(")[0]
            formulas = op.get("gradients", {}).values()
            if own in shown or any(not re.match(r"none\s*:", formula) for formula in formulas):
                yield f"{name}/{own}"


def examples(plugin):
    """Returns the (op, arguments, keywords) that a plugin's examples bring."""
    path = tree_plugins.FOLDER / plugin / SAMPLES
    if not path.exists():
        return []
    spec = importlib.util.spec_from_file_location(f"{plugin}_gradient_examples", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.examples())


@pytest.mark.parametrize("name", list(declared()))
def test_every_declared_gradient(name):
    plugin, op = name.split("/")
    if plugin not in {one["name"] for one in opdock.plugins()}:
        assert plugin not in tree_plugins.always_built()
        pytest.skip(f"the build found no compiler for {plugin}")
    calls = [call[1:] for call in examples(plugin) if call[0] == op]
    assert calls, f"found no example of {op}, wanted one in plugins/{plugin}/{SAMPLES}"
    for args, keywords in calls:
        check_gradients(name, *args, **keywords)


# ------------------------------------------------------------------------------- the check itself

TENSOR, LIST, OPTIONAL = 8, 2, 1
PARAM, RESULT, INCOMING, CONSTANT = range(4)


class Function:
    """Has the parts of an opdock.Function that the check uses, made from a Python function and its
    declarations."""

    def __init__(self, call, gradients=(), flags=()):
        self.call, self._gradients = call, list(gradients)
        self.__name__ = call.__name__
        self.__signature__ = inspect.signature(call)
        names = list(self.__signature__.parameters)
        kinds = {"generator": 11, "factor": 3}
        self._params = [(n, kinds.get(n, TENSOR), dict(flags).get(n, 0), None) for n in names]

    def __call__(self, *args, **keywords):
        return self.call(*args, **keywords)


def product(x, y, factor=2.0):
    return factor * x * y, x > 0


def product_backward(grad, other, factor):
    return grad * other * factor


def both_backward(grad, x, y, factor):
    return grad * y * factor, grad * x * factor


HELPERS = {f.__name__: Function(f) for f in (product_backward, both_backward)}
OF_X = ([(0, 0)], "product_backward", [(INCOMING, 0, None), (PARAM, 1, None), (PARAM, 2, None)])
OF_Y = ([(1, 0)], "product_backward", [(INCOMING, 0, None), (PARAM, 0, None), (PARAM, 2, None)])
OF_BOTH = (
    [(0, 0), (1, 1)],
    "both_backward",
    [(INCOMING, 0, None), *((PARAM, i, None) for i in range(3))],
)
X, Y = np.random.default_rng(3).standard_normal((2, 3, 4))


def check(gradients, *args, call=product, helpers=HELPERS, flags=(), **keywords):
    check_function(Function(call, gradients, flags), helpers.__getitem__, args, keywords)


@pytest.mark.parametrize(
    "gradients", [[OF_X, OF_Y], [OF_BOTH], [OF_X, ([(1, 0)], None, "a reason")]]
)
def test_right_gradients_pass(gradients):
    check(gradients, X, Y)
    check(gradients, X, Y, factor=-0.5)


@pytest.mark.parametrize(
    ("gradients", "what"),
    [
        ([OF_X, ([(1, 0)], *OF_X[1:])], "'y': 12 of 12"),  # the factor is wrong
        (
            [([(0, 0)], "product_backward", [*OF_X[2][:2], (CONSTANT, 0, 1.0)]), OF_Y],
            "'x': 12 of 12",
        ),
        ([([(1, 0), (0, 1)], *OF_BOTH[1:])], "'y': 12 of 12"),  # the order is wrong
        ([([(0, 0)], "product_backward", [(PARAM, 1, None), *OF_X[2][1:]])], "'x': 12 of 12"),
        # The gradient of a result that is not floating-point is 0.
        ([([(0, 0)], "product_backward", [(INCOMING, 1, None), *OF_X[2][1:]])], "'x': 12 of 12"),
    ],
)
def test_wrong_gradients_are_found(gradients, what):
    with pytest.raises(AssertionError, match=rf"product: the gradient of {what}.*differences"):
        check(gradients, X, Y)


def test_parameters_may_share_a_gradient():
    def square(x, y):
        return (x + y) ** 2

    helpers = {"square_backward": Function(lambda grad, x, y: 2 * (x + y) * grad)}
    formula = [(INCOMING, 0, None), (PARAM, 0, None), (PARAM, 1, None)]
    shared = [([(0, 0), (1, 0)], "square_backward", formula)]
    check(shared, X, Y, call=square, helpers=helpers)
    with pytest.raises(AssertionError, match="'y': 12 of 12"):
        check(shared, X, Y, call=lambda x, y: x * x + 2 * x * y, helpers=helpers)


def test_one_wrong_element_is_found():
    def broken(grad, other, factor):
        found = grad * other * factor
        found[2, 1] *= 1 + 1e-4
        return found

    with pytest.raises(AssertionError, match=r"'x': 1 of 12 elements differ; at \(2, 1\)"):
        check([OF_X], X, Y, helpers={"product_backward": Function(broken)})
    for wrong in (np.nan, np.inf):
        bad = Function(lambda grad, other, factor, wrong=wrong: grad * wrong)
        bad._params.pop()
        with pytest.raises(AssertionError, match="12 of 12"):
            check([OF_X], X, Y, helpers={"product_backward": bad})
    with pytest.raises(AssertionError, match=r"'x': 1 of 1 elements differ; at \(\) found"):
        tripled = Function(lambda grad, other, factor: 3 * grad)
        check([OF_X], np.array(1.0), np.array(2.0), helpers={"product_backward": tripled})
    with pytest.raises(AssertionError, match=r"found shape \(4,\), wanted \(3, 4\)"):
        row = Function(lambda grad, other, factor: grad[0])
        check([OF_X], X, Y, helpers={"product_backward": row})


def test_lists_and_arguments_that_are_not_there():
    def total(xs, y=None):
        return sum(x * x for x in xs) + (0 if y is None else y)

    def total_backward(grad, xs):
        return [2 * grad * x for x in xs]

    helpers = {"total_backward": Function(total_backward)}
    gradients = [([(0, 0)], "total_backward", [(INCOMING, 0, None), (PARAM, 0, None)])]
    check(gradients, [X, Y], call=total, helpers=helpers)
    with pytest.raises(AssertionError, match=r"'xs'\[1\]"):
        wrong = Function(lambda grad, xs: [2 * grad * xs[0], grad])
        check(gradients, [X, Y], call=total, helpers={"total_backward": wrong})
    of_y = [([(1, 0)], "total_backward", gradients[0][2])]
    with pytest.raises(ValueError, match="found no gradient to check"):
        check(of_y, [X], call=total, helpers=helpers)


def test_what_cannot_be_checked_is_said():
    with pytest.raises(ValueError, match="found no gradient to check"):
        check([([(0, 0), (1, 1)], None, "a reason")], X, Y)
    with pytest.raises(ValueError, match="'x': found float32, wanted.*float64"):
        check([OF_X], X.astype(np.float32), Y)
    numbers = np.random.default_rng(1)
    with pytest.raises(ValueError, match="second call.*Generator"):
        check([OF_X], X, Y, call=lambda x, y, factor=1.0: x * y * numbers.random(x.shape))


def test_generators_give_the_same_numbers_again():
    def noisy(x, generator=None):
        seed = [1, 2] if generator is None else generator
        return x * np.random.default_rng(seed).random(x.shape)

    found = []

    def backward(grad, generator):
        found.append(generator)
        return noisy(grad, generator)

    gradients = [([(0, 0)], "backward", [(INCOMING, 0, None), (PARAM, 1, None)])]
    for given in (None, 5, (5, 6), opdock.Generator(5, 6)):
        check(gradients, X, call=noisy, helpers={"backward": Function(backward)}, generator=given)
    assert found[1:] == [5, (5, 6), (5, 6)] and isinstance(found[0], int)
