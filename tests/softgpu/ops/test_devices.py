# SPDX-License-Identifier: Apache-2.0
"""Tests several software GPUs of each kind, and work that is made to wait for other work."""

import pytest
from conftest import TOOLS, needs_hiprtc, software

FOURS = {
    "cuda": ["sm_90", "sm_90", "sm_75", "sm_75"],
    "rocm": ["gfx90a", "gfx90a", "gfx1030", "gfx1030"],
}


@pytest.fixture(params=["cuda", "rocm"])
def four(request):
    """Returns four GPUs of one driver."""
    if request.param == "rocm":
        needs_hiprtc()
    return [{"arch": arch} for arch in FOURS[request.param]]


@pytest.fixture
def small(soft, sparse):
    """Returns soft() with the small softmax, which is compiled in no time for those GPUs for which
    it has no image."""

    def run(program, gpus):
        code = sparse.parent / "code"
        code.mkdir(exist_ok=True)
        softmax = sparse / "softmax.so"
        assert software.fill_code(TOOLS / "opdock-soft-code", [softmax], code)
        places = {"OPDOCK_PLUGIN_PATH": sparse, "OPDOCK_CACHE_DIR": sparse.parent / "images"}
        variables = {name: str(place) for name, place in places.items()}
        return soft(program, gpus=gpus, variables=variables, code=code)

    return run


def test_each_device_gets_its_own_image_and_gives_its_own_results(small, four):
    done = small(
        """
        x = torch.randn(7, 300)
        found = [on(f"{device}:{i}", softmax)(x) for i in range(4)]
        show(wrong=[wrong(y, x) for y in found],
             near=[torch.allclose(y, found[0], rtol=1e-6, atol=0) for y in found])
        """,
        gpus=four,
    )
    assert done.shown == {"wrong": [0] * 4, "near": [True] * 4}
    loaded = {load["arch"].split(":")[0] for load in done.events("load")}
    assert loaded == {gpu["arch"] for gpu in four}
    assert {launch["device"] for launch in done.events("launch")} == {0, 1, 2, 3}
    assert done.findings == []


def test_threads_on_four_devices(small, four):
    done = small(
        """
        import threading
        bad = []
        def work(index):
            for seed in range(5):
                x = torch.randn(20, 100 + seed, generator=torch.Generator().manual_seed(seed))
                if wrong(on(f"{device}:{index}", softmax)(x), x):
                    bad.append((index, seed))
        threads = [threading.Thread(target=work, args=(i % 4,)) for i in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        show(bad=bad)
        """,
        gpus=four,
    )
    assert done.shown == {"bad": []} and done.findings == []
    assert len(done.events("launch")) == 40


def test_tensors_on_different_devices_are_refused(soft, four):
    done = soft(
        """
        x = torch.ones(2, 8)
        first, second = f"{device}:0", f"{device}:1"
        show(mask=error(softmax, move(x, first), mask=move(x[0], second)),
             out=error(softmax, move(x, first), out=move(x, second)), second=second)
        """,
        gpus=four,
    )
    assert "'mask'" in done.shown["mask"] and done.shown["second"] in done.shown["mask"]
    assert done.shown["second"] in done.shown["out"]
    assert done.events("launch") == []


def test_both_drivers_in_one_process(soft):
    needs_hiprtc()
    done = soft(
        """
        x = torch.randn(7, 300)
        show(wrong=[wrong(on(device, softmax)(x), x) for device in ("cuda", "rocm")],
             mixed=error(softmax, move(x, "cuda"), out=move(x, "rocm")))
        """,
        gpus=[{"arch": "sm_90"}, {"arch": "gfx90a"}],
    )
    assert done.shown["wrong"] == [0, 0] and done.findings == []
    assert "rocm:0" in done.shown["mixed"]


PENDING = """
    from opdock._author import driver
    from opdock._author.device_array import allocate_like, to_gpu
    gpu = driver.gpu(device)
    stream = gpu.stream()
    x = torch.randn(64, 1024)
    there = to_gpu(x, gpu, stream)  # a copy that is still under way
    {forget}
    y = to_cpu(softmax(there))
    gpu.synchronize(stream)
    show(wrong=wrong(y, x))
"""


def test_an_op_waits_for_the_stream_that_makes_its_argument(soft, arch):
    """The __dlpack__ handshake orders them: the array makes the op's stream wait for its own."""
    done = soft(PENDING.format(forget=""), gpus=[{"arch": arch}])
    assert done.shown == {"wrong": 0} and done.findings == []


def test_an_op_that_did_not_wait_is_found(soft, arch):
    done = soft(PENDING.format(forget="there.stream = None"), gpus=[{"arch": arch}], check=False)
    assert done.status != 0 and "wrong" not in done.shown
    assert "DeviceLostError" in done.stderr
    assert any("stream" in finding for finding in done.findings), done.stderr


# Opdock takes an op's stream from the arrays' library: torch, which has no software GPU, or CuPy.
# This stand-in has as much of CuPy as Opdock uses. The caller orders work on the side stream.
SIDE = """
    import types
    from opdock._author import driver
    from opdock._author.device_array import DeviceArray, allocate_like, to_gpu
    gpu = driver.gpu(device)
    makes, uses = gpu.stream(), gpu.stream()
    cupy, cuda = types.ModuleType("cupy"), types.ModuleType("cupy.cuda")
    cupy.ndarray, cupy.cuda = type("ndarray", (DeviceArray,), {}), cuda
    cuda.get_current_stream = lambda: types.SimpleNamespace(ptr=uses)
    sys.modules |= {"cupy": cupy, "cupy.cuda": cuda}
    x = torch.randn(64, 1024)
    there, out = to_gpu(x, gpu, makes), allocate_like(x, gpu)
    there.__class__ = out.__class__ = cupy.ndarray
"""
OP = """
    assert softmax(there, out=out) is out
    gpu.synchronize(uses)
    show(stream=uses, wrong=wrong(to_cpu(out), x))
"""
KERNEL = """
    kernel = opdock.compile('''
    #include "opdock/device.cuh"
    using namespace opdock;
    extern "C" OPDOCK_KERNEL(256) copy(float* y, const float* x) {
      const long long at = block_index() * block_threads() + thread_index();
      y[at] = x[at];
    }''', device=device).kernel("copy")
    kernel(256, 256, out, there, stream=uses)
    gpu.synchronize(uses)
    show(stream=uses, wrong=int((to_cpu(out) != x).sum()))
"""


@pytest.mark.parametrize("what", [OP, KERNEL], ids=["op", "kernel"])
def test_on_a_side_stream(soft, arch, what):
    done = soft(SIDE + "    gpu.order(makes, uses)\n" + what, gpus=[{"arch": arch}])
    assert done.shown["wrong"] == 0 and done.findings == []
    (launch,) = done.events("launch")
    assert int(launch["stream"], 16) == done.shown["stream"]


@pytest.mark.parametrize("what", [OP, KERNEL], ids=["op", "kernel"])
def test_a_missing_dependency_of_a_side_stream_is_found(soft, arch, what):
    forget = "    there.stream = None\n"  # __dlpack__ would otherwise order a kernel's stream
    done = soft(SIDE + forget + what, gpus=[{"arch": arch}], check=False)
    assert done.status != 0 and "wrong" not in done.shown, done.shown
    assert "DeviceLostError" in done.stderr or "GpuError" in done.stderr, done.stderr
    assert "stream" in done.findings[0], done.findings


# A stand-in with the attributes of cupy.ndarray, which are read instead of calling __dlpack__.
CUPY = (
    SIDE
    + """
    import numpy
    class ndarray(DeviceArray):
        exports = 0
        def __init__(self, shape, dtype):  # on the first GPU
            self.owner = allocate_like(torch.empty(shape, dtype=getattr(torch, dtype.name)), gpu)
            self.__dict__ |= self.owner.__dict__
        dtype = property(lambda self: numpy.dtype(self.plain().dtype.__repr__()[6:]))
        strides = property(lambda self: tuple(4 * s for s in self.plain().strides))
        data = property(lambda self: types.SimpleNamespace(ptr=self.address, device_id=0))
        def plain(self):
            plain = object.__new__(DeviceArray)
            plain.__dict__ = self.__dict__
            return plain
        def __dlpack__(self, **how):
            ndarray.exports += 1
            return self.plain().__dlpack__(**how)
    cupy.ndarray, cupy.empty = ndarray, ndarray
    cuda.runtime = types.SimpleNamespace(is_hip=device == "rocm", getDevice=lambda: 0)
    def like(array):
        array.__class__ = ndarray
        return array
    there, out = like(to_gpu(x, gpu, uses)), like(allocate_like(x, gpu))
"""
)


def test_cupys_arrays_are_read_by_their_attributes(soft, arch):
    """The attributes are also read for result arrays, empty arrays and arrays with gaps between
    rows. They are not read for arrays whose strides are not multiples of the element size, whose
    dtype is unknown, or whose class is another one."""
    done = soft(
        CUPY
        + """
    found = softmax(there)
    bad = [wrong(found.plain().to_host(), x), type(found) is ndarray]
    wide = like(to_gpu(x, gpu, uses))
    wide.__dict__.update(shape=(64, 1000))
    bad.append(wrong(softmax(wide).plain().to_host(), x[:, :1000]))
    empty = like(allocate_like(x[:0], gpu))
    bad.append(softmax(empty).shape == (0, 1024))
    exports = [ndarray.exports]
    class Part(ndarray): pass
    part = to_gpu(x, gpu, uses)
    part.__class__ = Part
    softmax(there, out=part)  # of another class
    exports.append(ndarray.exports)
    ndarray.strides = property(lambda self: (4095, 4))
    bad.append(error(softmax, there, out=out))  # by __dlpack__, which says what they are
    exports.append(ndarray.exports)
    show(bad=bad, exports=exports)
    """,
        gpus=[{"arch": arch}],
    )
    assert done.shown["bad"] == [0, True, 0, True, None]
    assert done.shown["exports"] == [0, 1, 3] and done.findings == []


@pytest.mark.parametrize("what", [OP, KERNEL], ids=["op", "kernel"])
def test_cupys_arrays_on_cupys_stream(soft, arch, what):
    text = CUPY + what.replace("to_cpu(out)", "out.plain().to_host()")
    text += "    show(exports=ndarray.exports)\n"
    done = soft(text, gpus=[{"arch": arch}])
    assert done.shown["wrong"] == 0 and done.shown["exports"] == 0 and done.findings == []
    (launch,) = done.events("launch")
    assert int(launch["stream"], 16) == done.shown["stream"]


def test_cupys_arrays_are_ordered_with_another_stream(soft, arch):
    """A kernel's stream that is not CuPy's current stream waits, through __dlpack__."""
    text = KERNEL.replace("stream=uses)", "stream=makes)", 1).replace("(uses)", "(makes)")
    text = CUPY + text.replace("to_cpu(out)", "out.plain().to_host()")
    done = soft(text + "    show(exports=ndarray.exports)\n", gpus=[{"arch": arch}])
    assert done.shown["wrong"] == 0 and done.shown["exports"] == 2 and done.findings == []


def test_captured_copies_and_launches_run_when_the_graph_does(soft, arch):
    """Uses the driver's graphs through the helpers of opdock.testing."""
    done = soft(
        """
        from opdock._author import driver
        from opdock._author.device_array import allocate_like, to_gpu
        gpu = driver.gpu(device)
        stream = gpu.stream()
        x = torch.arange(12.0).view(3, 4)
        kept = x.clone()
        there = allocate_like(x, gpu)
        graph = gpu.capture(stream, lambda: gpu.to_device(there.address, x.data_ptr(), 48, stream))
        x += 1  # read when the graph runs
        gpu.launch_graph(graph, stream)
        gpu.synchronize(stream)
        show(new=torch.equal(there.to_host(), kept + 1))
        """,
        gpus=[{"arch": arch}],
    )
    assert done.shown == {"new": True} and done.findings == []


def test_a_captured_op_on_a_side_stream_runs_when_the_graph_does(soft, arch):
    """Capturing an op launches nothing; each launch of the graph launches it once."""
    done = soft(
        SIDE
        + """
    gpu.synchronize(makes)
    softmax(there, out=out)  # now its kernels are loaded
    gpu.synchronize(uses)
    graph = gpu.capture(uses, lambda: softmax(there, out=out))
    bad = []
    for seed in (1, 2):
        x = torch.randn(64, 1024, generator=torch.Generator().manual_seed(seed))
        gpu.to_device(there.address, x.data_ptr(), x.nbytes, uses)
        gpu.launch_graph(graph, uses)
        gpu.synchronize(uses)
        bad.append(wrong(to_cpu(out), x))
    show(bad=bad)
    """,
        gpus=[{"arch": arch}],
    )
    assert done.shown == {"bad": [0, 0]} and done.findings == []
