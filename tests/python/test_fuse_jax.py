# SPDX-License-Identifier: Apache-2.0
"""Tests opdock.fuse over functions of jax.numpy and jax.nn, against JAX itself on the CPU."""

import threading
from pathlib import Path

import numpy as np
import pytest

import opdock

jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402  (after the check that there is a JAX)
from jax.numpy import exp as own_name  # noqa: E402  (likewise)

LINE = Path(__file__).name


@pytest.fixture(autouse=True)
def on_cpu():
    with jax.default_device(jax.devices("cpu")[0]):
        yield


def rows(dtype="float32", seed=0):
    return jnp.asarray(np.random.default_rng(seed).uniform(-2, 2, (4, 6)), dtype)


def check(function, *args):
    """Compares a first and a second call with JAX; returns the fused function."""
    # One compilation takes less time than that of each operation.
    fused, wanted = opdock.fuse(function), jax.jit(function)(*args)
    for found in (fused(*args), fused(*args)):
        assert isinstance(found, jax.Array)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        # JAX rounds each value to 16 bits, a formula only the result.
        is_short = any(x.dtype.itemsize == 2 for x in (found, *args) if hasattr(x, "dtype"))
        close = 2e-2 if is_short else 2e-6
        np.testing.assert_allclose(
            np.asarray(found, np.float64), np.asarray(wanted, np.float64), rtol=close, atol=close
        )
    return fused


FUNCTIONS = {
    "elementwise": lambda x: jnp.exp(jnp.tanh(x)) + jnp.square(x) * jnp.where(x > 0, x, 0.5),
    "of two": lambda x: jnp.maximum(x, 0) - jnp.logaddexp(x, 1.0) / jnp.add(x, 5),
    "clip": lambda x: jnp.clip(x, -1, max=0.5) + jnp.zeros_like(x),
    "dtypes": lambda x: jnp.astype(x, jnp.bfloat16) * 2 + x.astype("float16"),
    "sums": lambda x: x - jnp.mean(x, axis=-1, keepdims=True) / jnp.std(x, -1, keepdims=True),
    "largest": lambda x: jnp.max(x, axis=-1) + jnp.sum(x, -1),
    "gelu": lambda x: jax.nn.gelu(x) - 2 * jax.nn.gelu(x, approximate=False),
    "gelu by place": lambda x: jax.nn.gelu(x, False),
    "activations": lambda x: jax.nn.relu(x) + jax.nn.silu(x) * jax.nn.swish(x) + jax.nn.elu(x),
    "more": lambda x: jax.nn.leaky_relu(x, 0.2) - jax.nn.softplus(x) * jax.nn.hard_sigmoid(x),
    "other names": lambda x: jax.nn.hard_tanh(x) + jax.nn.soft_sign(x) - jax.nn.hard_swish(x),
    "softmax": lambda x: jax.nn.softmax(x) * jax.nn.log_softmax(x, axis=1),
    "logsumexp": lambda x: x - jax.nn.logsumexp(x, axis=-1, keepdims=True),
    "lax": lambda x: x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6),
    "special": lambda x: jax.scipy.special.erf(x) + jax.lax.logistic(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    check(FUNCTIONS[name], rows())


@pytest.mark.parametrize("name", ["dtypes", "sums"])
def test_functions_of_bfloat16(name):
    check(FUNCTIONS[name], rows("bfloat16"))


def test_shapes_numbers_and_promotion():
    fused = check(lambda x, y, a: jnp.where(x > y, x * a, y), rows("float16"), rows(seed=1), 3)
    assert len(fused.formulas()) == 1
    x = jnp.ones((2, 8), jnp.float16)
    assert fused(x, jnp.zeros(8, jnp.float32), 2).dtype == jnp.float32
    check(lambda x: jnp.where(x > 0, 1.0, 0.0) * x, rows("float16"))  # a weak type


def test_the_formula():
    def rms(x, weight):
        return weight * x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6)

    fused = check(rms, rows(), rows(seed=1)[0])
    assert fused.formulas() == [
        (
            "rms(Tensor x, Tensor weight) -> Tensor",
            "t1 = weight * x\nt2 = square(x)\nt3 = mean(t2)\nt4 = t3 + 1e-06\nt5 = rsqrt(t4)\n"
            "return t1 * t5",
        )
    ]


def test_jax_is_as_before():
    before = dict(vars(jnp)), dict(vars(jax.nn))
    opdock.fuse(lambda x: jnp.exp(x))(rows())
    with pytest.raises(ZeroDivisionError):
        opdock.fuse(lambda x: jnp.exp(x) / (1 // 0))(rows())
    assert (dict(vars(jnp)), dict(vars(jax.nn))) == before


def test_other_threads_compute_meanwhile():
    inside, go = threading.Event(), threading.Event()

    def function(x):
        inside.set()
        assert go.wait(60)
        return jnp.exp(x)

    found = []
    thread = threading.Thread(target=lambda: found.append(opdock.fuse(function)(rows())))
    thread.start()
    assert inside.wait(60)
    assert float(jnp.exp(0.0)) == 1 and jnp.add.identity == 0
    # Another trace begins and ends while the first one lasts.
    check(lambda x: jnp.cos(x), rows())
    go.set()
    thread.join()
    np.testing.assert_allclose(np.asarray(found[0]), np.exp(np.asarray(rows())), rtol=2e-6)
    assert type(jnp.exp) is type(jnp.cos) is type(own_name)


def error_of(function):
    with pytest.raises(opdock.InvalidArgumentError) as error:
        opdock.fuse(function)(rows())
    return str(error.value)


def test_a_function_by_its_own_name():
    def function(x):
        return own_name(x)

    line = function.__code__.co_firstlineno + 1
    assert error_of(function) == (
        "fuse: function: found a call that takes no stand-in for a JAX array, wanted operators, "
        "methods, and functions as names of their modules; write jax.numpy.exp(x) instead of "
        f"exp(x), and leave out jax.jit\n  {LINE}:{line}: return own_name(x)"
    )


def test_what_is_refused():
    def function(x):
        return jnp.fft.fft(x) if x.ndim == 3 else jnp.sort(x)

    line = function.__code__.co_firstlineno + 1
    assert error_of(function) == (
        "fuse: function: found the function or method 'sort', wanted one that fuse knows; "
        "docs/guide/fuse.md lists them, or call it before or after the fused function\n"
        f"  {LINE}:{line}: return jnp.fft.fft(x) if x.ndim == 3 else jnp.sort(x)"
    )
    assert "'softmax'" in error_of(lambda x: jax.nn.softmax(x, where=x > 0))
    assert "factors or a sign" in error_of(lambda x: jax.nn.logsumexp(x, -1, b=x))
    assert "dimension 0" in error_of(lambda x: jax.nn.softmax(x, axis=0))


def test_many_threads_trace():
    threads, wrong = [], []

    def work(seed):
        for i in range(5):
            x = rows(seed=seed)
            found = opdock.fuse(lambda x, i=i: jnp.sinh(x) + i)(x)
            if not np.allclose(np.asarray(found), np.sinh(np.asarray(x)) + i, atol=1e-5):
                wrong.append(seed)

    for seed in range(4):
        threads.append(threading.Thread(target=work, args=(seed,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert not wrong and type(jnp.sinh) is type(own_name)
