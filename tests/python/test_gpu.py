# SPDX-License-Identifier: Apache-2.0
"""Tests on a CUDA GPU: streams, devices, threads, graphs, CuPy and JAX. The oracle is torch in
float64."""

import threading

import numpy as np
import pytest

import opdock

pytestmark = pytest.mark.gpu

#: clock cycles for which a stream is kept busy, so that work on a wrong stream overtakes it
BUSY = 200_000_000


def oracle(torch, x):
    return torch.softmax(x.double(), -1)


def close(torch, found, x):
    wanted = oracle(torch, x)
    return bool((found.double() - wanted).abs().max() < 1e-6)


def test_results_are_torch_tensors_on_the_device(ops, cuda):
    x = cuda.randn(37, 129, device="cuda")
    for view in (x, x[:, :64], x[::2]):
        y = ops.softmax(view)
        assert type(y) is cuda.Tensor and y.device == x.device and y.shape == view.shape
        assert close(cuda, y, view)
    out = cuda.empty_like(x)
    assert ops.softmax(x, out=out) is out and close(cuda, out, x)


def test_work_follows_the_current_stream(ops, cuda):
    x = cuda.zeros(64, 256, device="cuda")
    new = cuda.randn(64, 256, device="cuda")
    ops.softmax(x)
    cuda.cuda.synchronize()
    stream = cuda.cuda.Stream()
    with cuda.cuda.stream(stream):
        cuda.cuda._sleep(BUSY)
        x.copy_(new)
        y = ops.softmax(x)
        z = y + 0
    # The call did not wait for the device.
    assert not stream.query()
    stream.synchronize()
    assert close(cuda, y, new) and cuda.equal(y, z)


def test_float32_is_rounded_to_tf32_where_torch_allows_it(ops, cuda):
    if cuda.cuda.get_device_capability() < (8, 0):
        pytest.skip("this GPU has no TF32")
    x, w = cuda.randn(256, 512, device="cuda"), cuda.randn(128, 512, device="cuda")
    wanted = x.double() @ w.double().t()
    before, errors = cuda.backends.cuda.matmul.allow_tf32, {}
    try:
        for stream in (cuda.cuda.current_stream(), cuda.cuda.Stream()):
            with cuda.cuda.stream(stream):
                for allowed in (False, True, False):
                    cuda.backends.cuda.matmul.allow_tf32 = allowed
                    cuda.cuda.synchronize()
                    error = (ops.linear(x, w).double() - wanted).abs().max().item()
                    errors.setdefault(allowed, []).append(error)
    finally:
        cuda.backends.cuda.matmul.allow_tf32 = before
    assert max(errors[False]) < 1e-3 < min(errors[True])


def test_threads_each_on_a_stream(ops, cuda):
    wrong = []

    def work(seed):
        generator = cuda.Generator("cuda").manual_seed(seed)
        with cuda.cuda.stream(cuda.cuda.Stream()):
            for _ in range(50):
                x = cuda.randn(33, 65, device="cuda", generator=generator)
                y = ops.softmax(x)
                cuda.cuda.current_stream().synchronize()
                if not close(cuda, y, x):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_captured_into_a_graph(ops, cuda):
    x = cuda.randn(16, 100, device="cuda")
    ops.softmax(x)
    cuda.cuda.synchronize()
    graph = cuda.cuda.CUDAGraph()
    with cuda.cuda.graph(graph):
        y = ops.softmax(x)
    x.copy_(cuda.randn_like(x))
    graph.replay()
    cuda.cuda.synchronize()
    assert close(cuda, y, x)


def test_a_prepared_op_can_be_captured_first_thing(ops, cuda):
    norm = opdock.load("layer_norm", device="cuda:0")
    x, w, b = (cuda.randn(*shape, device="cuda") for shape in ((8, 64), (64,), (64,)))
    cuda.cuda.synchronize()
    graph = cuda.cuda.CUDAGraph()
    with cuda.cuda.graph(graph):
        y = norm(x, w, b)
    graph.replay()
    cuda.cuda.synchronize()
    wanted = cuda.nn.functional.layer_norm(x.double(), (64,), w.double(), b.double())
    assert (y.double() - wanted).abs().max() < 1e-5


def test_devices_are_not_mixed(ops, cuda):
    x = cuda.randn(4, 8, device="cuda")
    for args in ((x, cuda.ones(8), cuda.ones(8)), (x.cpu(), x[0], x[0])):
        with pytest.raises(opdock.OpdockError, match="'weight'|cuda|cpu"):
            ops.layer_norm(*args)
    with pytest.raises(opdock.OpdockError, match="cpu|cuda"):
        ops.softmax(x, out=cuda.empty(4, 8))


def test_another_device_than_the_current_one(ops, cuda):
    if cuda.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    x = cuda.randn(16, 32, device="cuda:1")
    assert cuda.cuda.current_device() == 0
    y = ops.softmax(x)
    assert y.device == x.device and close(cuda, y, x)
    assert cuda.cuda.current_device() == 0


def test_traps_hold_on_the_gpu(ops, cuda):
    x = cuda.ones(4, dtype=cuda.complex64, device="cuda")
    with pytest.raises(opdock.InvalidArgumentError, match="conjugate"):
        ops.noop(x.conj())
    with pytest.raises(opdock.InvalidArgumentError, match="negative"):
        ops.noop(x.conj().imag)
    with pytest.raises(opdock.InvalidArgumentError, match="detach"):
        ops.softmax(cuda.ones(2, 2, device="cuda", requires_grad=True))
    pinned = cuda.ones(3, 3).pin_memory()
    assert ops.softmax(pinned).device.type == "cpu"


def test_cupy(ops, cuda):
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    x = cupy.zeros((64, 256), cupy.float32)
    new = cupy.random.standard_normal((64, 256), dtype=cupy.float32)
    ops.softmax(x)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    busy = cuda.cuda.ExternalStream(stream.ptr)
    with stream:
        with cuda.cuda.stream(busy):
            cuda.cuda._sleep(BUSY)
        x[...] = new
        y = ops.softmax(x)
    stream.synchronize()
    assert isinstance(y, cupy.ndarray)
    wanted = oracle(cuda, cuda.from_numpy(cupy.asnumpy(new))).numpy()
    np.testing.assert_allclose(cupy.asnumpy(y), wanted, atol=1e-6)


def test_cupy_and_torch_in_one_call(ops, cuda):
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    x = cuda.randn(8, 64, device="cuda")
    w, b = cupy.ones(64, cupy.float32), cupy.zeros(64, cupy.float32)
    y = ops.layer_norm(x, w, b)
    wanted = cuda.nn.functional.layer_norm(x.double(), (64,))
    assert type(y) is cuda.Tensor and (y.double() - wanted).abs().max() < 1e-5


def test_jax(ops, cuda):
    jax = pytest.importorskip("jax", reason="jax is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("this jax has no GPU")
    x = jax.random.normal(jax.random.key(0), (64, 256), dtype="float32")
    for _ in range(20):
        x = x @ jax.numpy.eye(256)  # still being computed when the call is made
        y = ops.softmax(x)
        assert isinstance(y, jax.Array)
        assert y.device == x.device
        np.testing.assert_allclose(
            np.asarray(y), np.asarray(jax.nn.softmax(x.astype("float32"))), atol=2e-6
        )


def test_jax_results_and_refusals(ops, cuda):
    jax = pytest.importorskip("jax", reason="jax is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("this jax has no GPU")
    x = jax.numpy.arange(24, dtype="bfloat16").reshape(4, 6)
    y = ops.softmax(x)
    assert y.dtype == x.dtype and float((y + 1).astype("float32").sum()) == pytest.approx(28, 0.01)
    with pytest.raises(opdock.InvalidArgumentError, match="read-only"):
        ops.softmax(x, out=x)
    w = jax.device_put(jax.numpy.ones(6, "bfloat16"), jax.devices("cpu")[0])
    with pytest.raises(opdock.OpdockError, match="'weight'.*cpu.*cuda:0"):
        ops.layer_norm(x, w, w)


def test_the_workspace_is_torchs_memory(ops, cuda):
    """A gradient sums over rows in memory from torch's allocator: with fresh results, with the
    caller's, on another stream, and in a graph."""
    grad = cuda.randn(4096, 512, device="cuda")
    wanted = grad.double().sum(0)

    def total(**keywords):
        return ops.bias_add_backward(grad, **keywords)[1]

    def right(found):
        return bool((found.double() - wanted).abs().max() < 1e-3)

    assert right(total())
    for out in (None, (cuda.empty_like(grad), cuda.empty(512, device="cuda"))):
        kept = None
        cuda.cuda.synchronize()
        cuda.cuda.empty_cache()
        before = cuda.cuda.memory_allocated()
        cuda.cuda.reset_peak_memory_stats()
        kept = ops.bias_add_backward(grad, out=out) if out else ops.bias_add_backward(grad)
        fresh = 0 if out else sum(x.numel() * x.element_size() for x in kept)
        assert cuda.cuda.memory_allocated() == before + fresh
        assert cuda.cuda.max_memory_allocated() > before + fresh + 4096
        assert right(kept[1])
    with cuda.cuda.stream(cuda.cuda.Stream()):
        cuda.cuda._sleep(BUSY // 20)
        # Each call's sums reuse the memory of the previous call's.
        found = [total() for _ in range(8)]
        others = [cuda.full((8, 512), 7.0, device="cuda") for _ in range(8)]
    cuda.cuda.synchronize()
    assert all(map(right, found)) and all(bool((x == 7).all()) for x in others)
    graph = cuda.cuda.CUDAGraph()
    with cuda.cuda.graph(graph):
        found = total()
    grad.mul_(2)
    graph.replay()
    assert right(found / 2)
