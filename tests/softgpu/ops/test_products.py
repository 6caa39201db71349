# SPDX-License-Identifier: Apache-2.0
"""Tests ops that multiply matrices and are captured into a graph before any of them has run:
loading the plugin for the device prepared what their products need."""

import pytest

CAPTURE = """
    import types
    from opdock._author import driver
    from opdock._author.device_array import DeviceArray, to_gpu
    gpu = driver.gpu(device)
    stream = gpu.stream()
    cupy, cuda = types.ModuleType("cupy"), types.ModuleType("cupy.cuda")
    cupy.ndarray, cupy.cuda = type("ndarray", (DeviceArray,), {{}}), cuda
    cuda.get_current_stream = lambda: types.SimpleNamespace(ptr=stream)
    sys.modules |= {{"cupy": cupy, "cupy.cuda": cuda}}
    gated = opdock.load("linear/gated_linear", device=device)
    x, w, scale = torch.randn({rows}, 64), torch.randn(48, 64), torch.rand(48) / 100
    q = torch.randint(-128, 128, (48, 64), dtype=torch.int8)
    def oracle(x, w):
        first, second = (x.double() @ w.double().t()).chunk(2, -1)
        return first * second * torch.sigmoid(second)
    wanted = lambda x: oracle(x, {weight})
    there = [to_gpu(t, gpu) for t in (x, w, q, scale, torch.zeros({rows}, 24))]
    gpu.synchronize()
    for array in there:
        array.__class__ = cupy.ndarray
    x_there, w_there, q_there, scale_there, out = there
    graph = gpu.capture(stream, lambda: gated(x_there, {call}, out=out))
    bad = []
    for seed in (1, 2):
        x = torch.randn({rows}, 64, generator=torch.Generator().manual_seed(seed))
        gpu.to_device(x_there.address, x.data_ptr(), x.nbytes, stream)
        gpu.launch_graph(graph, stream)
        gpu.synchronize(stream)
        away = (out.to_host().double() - wanted(x)).abs()
        bad.append(int((away > 1e-4 * (1 + wanted(x).abs())).sum()))
    show(bad=bad)
"""
FLOATS = {"weight": "w", "call": "w_there"}
INTEGERS = {"weight": "q * scale[:, None]", "call": "q_there, weight_scale=scale_there"}


@pytest.mark.parametrize("what", [FLOATS, INTEGERS], ids=["floats", "int8"])
@pytest.mark.parametrize("rows", [1, 40])
def test_the_first_call_may_be_captured(soft, arch, what, rows):
    done = soft(
        CAPTURE.format(rows=rows, **what),
        gpus=[{"arch": arch}],
        variables={"OPDOCK_GEMM": "plain"},
    )
    assert done.shown == {"bad": [0, 0]} and done.findings == []
