# SPDX-License-Identifier: Apache-2.0
"""Tests opdock.compile: images without a GPU, launches on the stand-in driver, and on a real GPU.

The stand-in (core/softgpu/driver) does not execute kernels here, it only records the launches."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest

import opdock

PROGRAM = """\
template <class T> __global__ void scale(T* x, T by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""


@pytest.fixture
def cache():
    """Returns a folder for a cache. It is not below /tmp, where no cache is accepted."""
    build = os.environ.get("OPDOCK_BUILD_DIR")
    if build is None:
        pytest.skip("OPDOCK_BUILD_DIR is not set")
    with tempfile.TemporaryDirectory(prefix="test-cache-", dir=build) as folder:
        yield folder


@pytest.fixture
def nvrtc():
    """Skips where no run-time compiler is found."""
    try:
        opdock.compile("__global__ void f() {}", kernels=["f"], arch="sm_90")
    except opdock.IncompatibleError as error:
        if any(reason["code"] == "jit-no-compiler" for reason in error.reasons):
            pytest.skip("no NVRTC is installed")
        raise


# ---- images only: no GPU, no driver


def test_an_image_needs_no_gpu(nvrtc):
    module = opdock.compile(PROGRAM, kernels=["scale<float>", "saxpy"], arch="sm_90a")
    assert module.image[:4] == b"\x7fELF"
    assert b"saxpy" in module.image and b"_Z5scaleIfEvPT_S0_i" in module.image
    assert module.arch == "sm_90a" and module.compiler.startswith("NVRTC ")
    ptx = opdock.compile(PROGRAM, arch="compute_80")
    assert b".target sm_80" in ptx.image and b"saxpy" in ptx.image
    with pytest.raises(opdock.InvalidArgumentError, match="device"):
        ptx._compiled(None).kernel("saxpy")


def test_errors_show_the_compilers_log_with_the_users_lines(nvrtc):
    with pytest.raises(opdock.InvalidArgumentError) as caught:
        opdock.compile(PROGRAM + "int oops\n", kernels=["saxpy"], arch="sm_90", name="mine.cu")
    assert "mine.cu(9)" in str(caught.value) or "mine.cu(10)" in str(caught.value)
    (reason,) = caught.value.reasons
    assert reason["code"] == "jit-source" and reason["stage"] == "jit"
    with pytest.raises(opdock.NotFoundError, match="no_such") as caught:
        opdock.compile(PROGRAM, kernels=["no_such"], arch="sm_90")
    assert caught.value.reasons[0]["code"] == "jit-kernel"
    with pytest.raises(opdock.InvalidArgumentError, match="--no-such-option"):
        opdock.compile(PROGRAM, kernels=["saxpy"], options=["--no-such-option"], arch="sm_90")
    with pytest.raises(opdock.IncompatibleError, match="jit-arch"):
        opdock.compile(PROGRAM, kernels=["saxpy"], arch="sm_9000")
    # The next compilation succeeds.
    assert opdock.compile(PROGRAM, kernels=["saxpy"], arch="sm_90").image
    assert opdock.compile(PROGRAM, kernels=["saxpy"], arch="9.0").arch == "sm_90"


def test_headers_options_and_the_vocabulary(nvrtc):
    source = '#include "n.h"\n#include "opdock/device.cuh"\n'
    source += "__global__ void f(float* x) { x[opdock::thread_index()] = N + M; }\n"
    module = opdock.compile(
        source, headers={"n.h": "#define N 4\n"}, options=["-DM=2"], kernels=["f"], arch="sm_80"
    )
    assert module.image[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    "arguments",
    [
        {"source": b"bytes"},
        {"options": "-DN=1"},
        {"options": [1]},
        {"headers": {"a": 1}},
        {"kernels": "f"},
        {"name": 3},
        {"arch": 90},
        {"device": "cpu"},
        {"device": "nonsense"},
    ],
)
def test_wrong_arguments_are_named(arguments):
    (name,) = arguments
    given = {"source": PROGRAM, **arguments}
    with pytest.raises(opdock.ArgumentError, match=name):
        opdock.compile(given.pop("source"), **given)


@pytest.mark.parametrize("device", [None, "cuda:0"])
@pytest.mark.parametrize("arch", ["sm_foo", "90", "", "hopper", "gfx", "gfx90a:xnack"])
def test_what_is_no_architecture_is_refused_at_once(arch, device):
    with pytest.raises(opdock.InvalidArgumentError, match="wanted one such as") as caught:
        opdock.compile(PROGRAM, arch=arch, device=device)
    assert f'"{arch}"' in str(caught.value)
    assert caught.value.reasons[0]["code"] == "jit-option"


def test_switched_off(nvrtc, cache):
    code = """
        import opdock
        try:
            opdock.compile("__global__ void f() {}", kernels=["f"], arch="sm_90")
        except opdock.IncompatibleError as error:
            print(error.reasons[0]["code"])
    """
    env = {**os.environ, "OPDOCK_JIT": "never", "OPDOCK_CACHE_DIR": cache}
    assert run(code, env).stdout.strip() == "jit-policy"


def test_the_next_process_compiles_nothing(nvrtc, cache):
    code = """
        import opdock
        m = opdock.compile("__global__ void f() {}", kernels=["f"], arch="sm_90")
        print(m.from_cache, len(m.image))
    """
    env = {**os.environ, "OPDOCK_CACHE_DIR": cache}
    first, second = run(code, env).stdout.split(), run(code, env).stdout.split()
    assert first[0] == "False" and second[0] == "True" and first[1] == second[1]


def test_many_processes_starting_cold_compile_once(nvrtc, cache):
    code = """
        import opdock
        m = opdock.compile("__global__ void f() {}", kernels=["f"], arch="sm_90")
        print(m.from_cache)
    """
    env = {**os.environ, "OPDOCK_CACHE_DIR": cache}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    started = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(6)
    ]
    answers = [process.communicate(timeout=120)[0].strip() for process in started]
    assert sorted(answers) == ["False"] + ["True"] * 5


# ---- on the stand-in driver


def run(code, env):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def softgpu(nvrtc, cache, tmp_path):
    """Returns run(code) -> (what it printed, launches), on two stand-in GPUs."""
    folder = Path(os.environ.get("OPDOCK_BUILD_DIR", "build")) / "core" / "softgpu" / "driver"

    def go(code, failures=()):
        gpus = [{"arch": "sm_90"}, {"arch": "sm_100"}]
        record = tmp_path / "record"
        record.unlink(missing_ok=True)
        env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(folder),
            "OPDOCK_SOFTGPU": json.dumps({"cuda": 13000, "gpus": gpus, "failures": failures}),
            "OPDOCK_SOFTGPU_RECORD": str(record),
            "OPDOCK_CACHE_DIR": cache,
            "PROGRAM": PROGRAM,
        }
        env.pop("CUDA_VISIBLE_DEVICES", None)
        begin = "import os, numpy as np, opdock\nPROGRAM = os.environ['PROGRAM']\n"
        out = run(begin + textwrap.dedent(code), env).stdout
        events = [json.loads(line) for line in record.read_text().splitlines()]
        return out, [event for event in events if event["event"] == "launch"]

    return go


def test_arguments_are_packed_by_the_parameters_sizes(softgpu):
    _, launches = softgpu("""
        f = opdock.compile(PROGRAM).kernel("saxpy")
        assert f.param_sizes == [4, 4, 8, 8] and f.__name__ == "saxpy"
        f(7, 256, 1000, 2.5, 0x1122334455667788, None)
        f((1, 2, 3), (4, 5), np.int32(-1), np.float32(0.5), 1, 2, shared=1024)
        f([2], [32], True, np.float32(1), 0, 0)
        g = opdock.compile(PROGRAM).kernel("scale<double>")
        g(1, 1, None, 3, 4)      # an int where the kernel takes a double
    """)
    assert launches[0]["grid"] == [7, 1, 1] and launches[0]["block"] == [256, 1, 1]
    expected = [struct.pack("<i", 1000), struct.pack("<f", 2.5)]
    expected += [struct.pack("<Q", 0x1122334455667788), struct.pack("<Q", 0)]
    assert launches[0]["args"] == [value.hex() for value in expected]
    assert launches[1]["grid"] == [1, 2, 3] and launches[1]["block"] == [4, 5, 1]
    assert launches[1]["shared"] == 1024
    assert launches[1]["args"][:2] == [b"\xff\xff\xff\xff".hex(), struct.pack("<f", 0.5).hex()]
    assert launches[2]["args"][0] == struct.pack("<i", 1).hex()
    assert launches[3]["function"] == "_Z5scaleIdEvPT_S0_i"
    assert launches[3]["args"][1] == struct.pack("<d", 3.0).hex()


def test_structs_by_value_and_small_types(softgpu):
    program = """
        struct P { float a; short b; };
        extern "C" __global__ void f(P p, unsigned char c, long long d, bool e) {}
        __global__ void g(unsigned short a, double b) {}
    """
    _, launches = softgpu(f"""
        import ctypes
        class P(ctypes.Structure):
            _fields_ = [("a", ctypes.c_float), ("b", ctypes.c_short)]
        m = opdock.compile({program!r}, kernels=["f", "g"], device=0)
        m.kernel("f")(1, 1, P(1.5, -2), 255, -1, True)
        m.kernel("f")(1, 1, np.array((1.5, -2, 0), [("a", "f4"), ("b", "i2"), ("c", "i2")])[()],
                      np.uint8(7), 2**64 - 1, False)
        m.kernel("f")(1, 1, bytes(8), -128, -2**63, np.bool_(True))
        m.kernel("g")(1, 1, 65535, 1)
    """)
    assert launches[0]["args"][0][:12] == struct.pack("<fh", 1.5, -2).hex()
    assert launches[0]["args"][1:] == ["ff", "ff" * 8, "01"]
    assert launches[1]["args"][0][:12] == struct.pack("<fh", 1.5, -2).hex()
    assert launches[1]["args"][1:] == ["07", "ff" * 8, "00"]
    assert launches[2]["args"] == ["00" * 8, "80", "00" * 7 + "80", "01"]
    assert launches[3]["args"] == ["ffff", struct.pack("<d", 1.0).hex()]


def test_wrong_arguments_name_their_place(softgpu):
    out, launches = softgpu("""
        f = opdock.compile(PROGRAM).kernel("saxpy")
        g = opdock.compile(PROGRAM).kernel("scale<float>")
        def show(k, *args, **names):
            try:
                k(*args, **names)
                print("no error")
            except opdock.OpdockError as error:
                print(type(error).__name__, str(error).splitlines()[0])
        show(f)
        show(f, 1, 1, 1)
        show(f, 1, 1, 1, 1.0, None, None, 5)
        show(f, 1, 1, 2**40, 1.0, None, None)
        show(f, 1, 1, "text", 1.0, None, None)
        show(f, 1, 1, np.int64(1), 1.0, None, None)
        show(f, 1, 1, None, 1.0, None, None)
        show(f, 1, 1, 1, 1.0, np.ones(3, "f4"), None)
        show(f, 0, 1, 1, 1.0, None, None)
        show(f, 2**70, 1, 1, 1.0, None, None)
        show(f, (1, 1, 1, 1), 1, 1, 1.0, None, None)
        show(f, 1.5, 1, 1, 1.0, None, None)
        show(f, 1, 1, 1, 1.0, None, None, stram=0)
        show(f, 1, 1, 1, 1.0, None, None, stream="x")
        show(g, 1, 1, 1.5, 1.0, 1)
        show(g, 1, 1, None, 1.0, 1.5)
        show(f, 1, 2000, 1, 1.0, None, None)
        show(f, 1, 1, 1, 1.0, None, None)
    """)
    lines = out.splitlines()
    expected = [
        ("ArgumentError", "grid and block"),
        ("ArgumentError", "found 1 argument after grid and block, wanted 4"),
        ("ArgumentError", "found 5 arguments"),
        (
            "InvalidArgumentError",
            "argument 0: found 1099511627776, wanted an int of 4 bytes: -2147483648 to",
        ),
        ("ArgumentError", "argument 0: found an object of type str"),
        ("ArgumentError", "argument 0: found numpy.int64 of 8 bytes, wanted 4 bytes"),
        ("ArgumentError", "argument 0"),
        ("InvalidArgumentError", "argument 2: found an array on the CPU"),
        ("InvalidArgumentError", "grid: found 0, wanted 1 to 4294967295"),
        ("InvalidArgumentError", f"grid: found {2**70}, wanted 1 to 4294967295"),
        ("ArgumentError", "grid: found 4 numbers"),
        ("ArgumentError", "grid: found an object of type float"),
        ("ArgumentError", "'stram'"),
        ("ArgumentError", "'stream'"),
        ("ArgumentError", "argument 0: found a float, wanted an array"),
        ("ArgumentError", "argument 2: found a float, wanted an int"),
        ("DeviceError", "cuLaunchKernel"),
        ("no", "error"),
    ]
    assert len(lines) == len(expected), out
    for line, (kind, words) in zip(lines, expected, strict=True):
        assert line.startswith(kind) and words in line, line
    assert len(launches) == 1


def test_launch_attributes_streams_and_devices(softgpu):
    _, launches = softgpu("""
        class Torch:
            cuda_stream = 0
        class Cupy:
            ptr = 0
        class Protocol:
            def __cuda_stream__(self):
                return (0, 0)
        m = opdock.compile(PROGRAM)
        f = m.kernel("saxpy")
        rest = (1, 1.0, None, None)
        f(8, 32, *rest, cluster=2, cooperative=True)
        f(8, 32, *rest, programmatic=True)
        for stream in (0, None, Torch(), Cupy(), Protocol()):
            f(1, 1, *rest, stream=stream)
        opdock.compile(PROGRAM, device="cuda:1").kernel("saxpy")(1, 1, *rest)
    """)
    assert launches[0]["attributes"] == {"cooperative": True, "cluster": [2, 1, 1]}
    assert launches[1]["attributes"] == {"programmatic": True}
    assert [launch["device"] for launch in launches] == [0] * 7 + [1]


def test_without_the_drivers_sizes_exact_types_are_asked_for(softgpu):
    out, launches = softgpu(
        """
        f = opdock.compile(PROGRAM).kernel("saxpy")
        print(f.param_sizes)
        try:
            f(1, 1, 5, np.float32(1), None, None)
        except opdock.ArgumentError as error:
            print(error)
        f(1, 1, np.int32(5), np.float32(1), None, None)
        """,
        failures=[{"function": "cuFuncGetParamInfo", "error": 801}],  # as in drivers before 12.4
    )
    assert out.startswith("None\n") and "argument 0" in out and "NumPy scalar" in out
    assert len(launches) == 1


def test_a_kernel_not_named_beforehand_is_compiled_when_asked_for(softgpu):
    out, launches = softgpu("""
        m = opdock.compile(PROGRAM, kernels=["scale<float>"])
        for name in ("scale<float>", "scale<int>", "saxpy", "scale<int>"):
            k = m.kernel(name)
            assert k is m.kernel(name)
        try:
            m.kernel("nothing")
        except opdock.NotFoundError as error:
            print(error.reasons[0]["code"])
        m.kernel("scale<int>")(1, 1, None, 2, 3)
    """)
    assert out == "jit-kernel\n"
    assert launches[0]["function"] == "_Z5scaleIiEvPT_S0_i"


# ---- on a GPU


@pytest.mark.gpu
def test_torch_arrays_on_the_current_stream(nvrtc, cuda):
    module = opdock.compile(PROGRAM)
    saxpy, scale = module.kernel("saxpy"), module.kernel("scale<double>")
    x = cuda.randn(1000, device="cuda")
    y = cuda.randn(1000, device="cuda")
    wanted = y + 2.5 * x
    saxpy(4, 256, 1000, 2.5, x, y)

    def close(found, wanted):
        # A sum near 0 keeps its terms' rounding: six of at most 2**-21, for terms below 16.
        return cuda.allclose(found, wanted, atol=4e-6)

    assert close(y, wanted)
    z = cuda.arange(10, dtype=cuda.float64, device="cuda")
    scale(1, 32, z[2:], 3, 4)
    assert z.tolist() == [0, 1, 6, 9, 12, 15, 6, 7, 8, 9]
    stream = cuda.cuda.Stream()
    slow = cuda.zeros(1000, device="cuda")
    cuda.cuda.synchronize()
    with cuda.cuda.stream(stream):
        cuda.cuda._sleep(200_000_000)
        slow.add_(1)
        saxpy(4, 256, 1000, 1.0, slow, y)
    assert not stream.query(), "a launch does not wait"
    stream.synchronize()
    assert close(y, wanted + 1)
    saxpy(4, 256, 1000, 1.0, slow, y, stream=stream)
    stream.synchronize()
    assert close(y, wanted + 2)


@pytest.mark.gpu
def test_cupy_arrays(nvrtc, cuda):
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    saxpy = opdock.compile(PROGRAM).kernel("saxpy")
    x, y = cupy.arange(100, dtype="f4"), cupy.ones(100, "f4")
    saxpy(1, 128, 100, 2.0, x, y)
    np.testing.assert_allclose(cupy.asnumpy(y), 1 + 2 * np.arange(100))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        saxpy(1, 128, 100, 2.0, x, y)
        stream.synchronize()
    np.testing.assert_allclose(cupy.asnumpy(y), 1 + 4 * np.arange(100))


@pytest.mark.gpu
def test_structs_clusters_and_shared_memory_on_the_gpu(nvrtc, cuda):
    program = """
        struct P { float a; int b; };
        extern "C" __global__ void f(P p, float* out) {
          extern __shared__ float memory[];
          memory[20000] = p.a + p.b;
          __syncthreads();
          out[blockIdx.x] = memory[20000];
        }
    """
    f = opdock.compile(program).kernel("f")
    out = cuda.zeros(4, device="cuda")
    f(4, 1, struct.pack("<fi", 0.5, 2), out, shared=100_000)
    assert out.tolist() == [2.5] * 4


@pytest.mark.gpu
def test_captured_into_a_graph(nvrtc, cuda):
    saxpy = opdock.compile(PROGRAM).kernel("saxpy")
    x, y = cuda.ones(64, device="cuda"), cuda.zeros(64, device="cuda")
    cuda.cuda.synchronize()
    graph = cuda.cuda.CUDAGraph()
    with cuda.cuda.graph(graph):
        saxpy(1, 64, 64, 3.0, x, y)
    graph.replay()
    cuda.cuda.synchronize()
    assert y.tolist() == [3.0] * 64


@pytest.mark.gpu
def test_a_kernel_follows_its_arguments_to_another_gpu(nvrtc, cuda):
    if cuda.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    saxpy = opdock.compile(PROGRAM).kernel("saxpy")
    for device in ("cuda:1", "cuda:0"):
        x, y = cuda.ones(8, device=device), cuda.zeros(8, device=device)
        saxpy(1, 8, 8, 2.0, x, y)
        assert cuda.cuda.current_device() == 0
        assert y.tolist() == [2.0] * 8
    with pytest.raises(opdock.InvalidArgumentError, match="argument 3"):
        saxpy(1, 8, 8, 2.0, cuda.ones(8, device="cuda:0"), y.to("cuda:1"))
