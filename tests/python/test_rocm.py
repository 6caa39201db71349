# SPDX-License-Identifier: Apache-2.0
"""Tests AMD GPUs through the stand-in HIP runtime: devices, images, streams, and compiling.

The stand-in records its calls, and executes kernels where a test says so."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("OPDOCK_BUILD_DIR", ".")).resolve()
SOFTGPU = BUILD / "core" / "softgpu" / "driver"

#: KFD's numbers of these processors
VERSIONS = {
    "gfx906": 90006,
    "gfx90a": 90010,
    "gfx942": 90402,
    "gfx1030": 100300,
    "gfx1031": 100301,
}

#: an array in HIP memory that supports only DLPack, like one of a library without streams
ARRAY = """
import ctypes
import opdock

hip = ctypes.CDLL("libamdhip64.so.6")


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Array:
    def __init__(self, count, index=0):
        self.index, self.streams = index, []
        data = ctypes.c_void_p()
        assert hip.hipSetDevice(index) == 0
        assert hip.hipMalloc(ctypes.byref(data), ctypes.c_size_t(4 * count)) == 0
        assert hip.hipSetDevice(0) == 0
        self.data = data.value
        self.shape = (ctypes.c_int64 * 1)(count)
        self.tensor = Tensor(self.data, (ctypes.c_int32 * 2)(10, index), 1, 2, 32, 1,
                             ctypes.addressof(self.shape), None, 0, None, None)

    def __dlpack_device__(self):
        return 10, self.index

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


def new_stream(index=0):
    made = ctypes.c_void_p()
    assert hip.hipSetDevice(index) == 0
    assert hip.hipStreamCreate(ctypes.byref(made)) == 0
    assert hip.hipSetDevice(0) == 0
    return made.value
"""


def write_kfd(folder, archs):
    """Writes the kernel driver's description of such GPUs, below `folder`."""
    nodes = folder / "sys" / "class" / "kfd" / "kfd" / "topology" / "nodes"
    for index, arch in enumerate([None, *archs]):
        node = nodes / str(index)
        node.mkdir(parents=True)
        version = 0 if arch is None else VERSIONS[arch]
        sramecc = 1 << 26
        node.joinpath("properties").write_text(
            f"gfx_target_version {version}\ncapability {sramecc}\ndrm_render_minor 0\n"
        )
        node.joinpath("name").write_text("soft\n")
    folder.joinpath("dev").mkdir()
    folder.joinpath("dev", "kfd").touch()


class Machine:
    def __init__(self, folder, cache, archs):
        self.record = folder / "record"
        write_kfd(folder, archs)
        self.soft = {"gpus": [{"arch": arch, "memory": 1 << 20} for arch in archs]}
        self.env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(SOFTGPU),
            "OPDOCK_SOFTGPU_RECORD": str(self.record),
            "OPDOCK_KFD": str(folder),
            "OPDOCK_CACHE_DIR": cache,
            "OPDOCK_PLUGIN_PATH": str(BUILD / "plugins"),
        }
        for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
            self.env.pop(name, None)

    def run(self, code, **variables):
        """Returns what `code` printed; a failure fails the test."""
        self.record.write_text("")
        done = subprocess.run(
            [sys.executable, "-c", ARRAY + textwrap.dedent(code)],
            env={**self.env, "OPDOCK_SOFTGPU": json.dumps(self.soft), **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def events(self, name):
        lines = [json.loads(line) for line in self.record.read_text().splitlines()]
        return [line for line in lines if line["event"] == name]


@pytest.fixture
def machine(tmp_path):
    # The folder is not below /tmp, where no cache is accepted.
    with tempfile.TemporaryDirectory(prefix="test-cache-", dir=BUILD) as cache:
        yield lambda *archs: Machine(tmp_path, cache, archs)


def packed(*archs):
    """Skips where the plugins were packed without code objects for these architectures."""
    import opdock

    images = opdock.inspect(str(BUILD / "plugins" / "noop.so"))["hip_archs"]
    if not set(archs) <= set(images):
        pytest.skip(f"noop was packed for {images}")


def needs_hiprtc():
    import opdock

    ways = {way["name"]: way for way in opdock.doctor()["ways"]}
    if ways["run-time compilation, HIP"]["verdict"] != "ready":
        pytest.skip("no hipRTC is installed")


def test_a_packed_code_object_is_loaded_for_each_gpu(machine):
    packed("gfx90a", "gfx1030")
    soft = machine("gfx90a", "gfx1030")
    soft.run("""
        for index in (0, 1):
            op = opdock.load("noop_launch", device=f"rocm:{index}")
            op(Array(16, index))
            here = ctypes.c_int()
            assert hip.hipGetDevice(ctypes.byref(here)) == 0 and here.value == 0
    """)
    assert [(one["device"], one["arch"]) for one in soft.events("load")] == [
        (0, "gfx90a"),
        (1, "gfx1030"),
    ]
    assert [one["device"] for one in soft.events("launch")] == [0, 1]


def test_names_of_devices(machine):
    packed("gfx90a")
    out = machine("gfx90a").run("""
        op = opdock.load("noop_launch", device="hip:0")
        opdock.load("noop_launch", device=(10, 0))
        for device in ("rocm:1", "cuda:0"):
            try:
                opdock.load("noop_launch", device=device)
            except opdock.OpdockError as error:
                print(type(error).__name__, device in str(error))
        class Version:
            hip = "6.2"
        import sys, types
        sys.modules["torch"] = types.SimpleNamespace(      # as a PyTorch for ROCm says it
            version=Version, cuda=types.SimpleNamespace(is_initialized=lambda: False),
            device=type("device", (), {}))
        opdock.load("noop_launch", device="cuda:0")
        opdock.load("noop_launch", device="cuda")
    """)
    assert out.splitlines() == ["IncompatibleError True"] * 2


def test_arrays_without_a_stream_are_waited_for(machine):
    packed("gfx90a")
    soft = machine("gfx90a")
    soft.run("""
        x = Array(16)
        opdock.ops.noop_launch(x)
        assert x.streams == [0], x.streams      # ROCm's default stream in the protocol
    """)
    assert [one["stream"] for one in soft.events("launch")] == ["0x0"]
    assert soft.events("synchronize")


def test_a_gpu_that_no_image_is_for_is_compiled_for_and_kept(machine):
    needs_hiprtc()
    soft = machine("gfx906")
    code = """
        op = opdock.load("noop_launch", device="rocm:0")
        op(Array(16))
        rocm = opdock.explain("noop_launch")["chain"][-1]
        steps = {step["step"]: step for step in rocm["steps"]}
        print(steps["binary"]["outcome"], steps["jit"]["outcome"])
        print([reason["code"] for reason in steps["binary"]["reasons"]])
    """
    out = soft.run(code).splitlines()
    assert out[0] == "failed used"
    assert "source-only" in out[1]
    loaded = soft.events("load")
    assert [one["arch"] for one in loaded] == ["gfx906:sramecc+:xnack-"]
    assert len(soft.events("launch")) == 1
    # The next process takes it from the cache, as no compiler may run.
    assert soft.run(code, OPDOCK_JIT="never").splitlines()[0] == "failed used"
    assert [one["sha256"] for one in soft.events("load")] == [loaded[0]["sha256"]]


@pytest.mark.parametrize(
    ("kfd", "hip"), [("gfx906", "gfx906:sramecc-:xnack-"), ("gfx90a", "gfx906:sramecc+:xnack+")]
)
def test_the_drivers_word_on_an_architecture_counts(machine, kfd, hip):
    """The driver reports other features, or another processor, than KFD: an image for KFD's would
    fail."""
    packed("gfx90a")
    needs_hiprtc()
    soft = machine(kfd)
    soft.soft["gpus"][0]["arch"] = hip
    soft.run("opdock.load('noop_launch', device='rocm:0')(Array(16))")
    assert [(one["arch"], one["result"]) for one in soft.events("load")] == [(hip, 0)]


@pytest.mark.parametrize("arch", ["gfx906", "gfx1031"])
def test_what_is_compiled_for_a_gpu_is_right(machine, tmp_path, arch):
    """Waves have 64 or 32 lanes; the software GPU executes the source that hipRTC compiled."""
    needs_hiprtc()
    code = tmp_path / "code"
    code.mkdir()
    soft = machine(arch)
    soft.soft.update(code=str(code), findings=str(tmp_path / "findings"))
    soft.run(
        """
        import numpy as np

        def move(function, to, source, array):
            pointers = [ctypes.c_void_p(one) for one in (to, source)]
            assert getattr(hip, function)(*pointers, ctypes.c_size_t(array.nbytes)) == 0

        values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
        x, y, found = Array(1000), Array(1000), np.empty(1000, np.float32)
        move("hipMemcpyHtoD", x.data, values.ctypes.data, values)
        assert opdock.ops.softmax(x, out=y) is y
        move("hipMemcpyDtoH", found.ctypes.data, y.data, found)
        wanted = np.exp(values.astype(np.float64))
        assert abs(found - wanted / wanted.sum()).max() < 1e-8
        """,
        OPDOCK_JIT_KEEP=str(code),
    )
    assert [one["arch"].split(":")[0] for one in soft.events("load")] == [arch]
    assert not (tmp_path / "findings").exists() or not (tmp_path / "findings").read_text()


def test_a_gpu_that_no_compiler_knows(machine):
    out = machine("gfx942").run("""
        try:
            opdock.load("noop_launch", device="rocm:0")
            print("loaded")      # by a hipRTC of ROCm 6
        except opdock.IncompatibleError as error:
            print(sorted({reason["code"] for reason in error.reasons}))
    """)
    assert "jit-arch" in out or "jit-no-compiler" in out or "loaded" in out, out


def test_the_command_runs_an_op(machine):
    packed("gfx1030")
    soft = machine("gfx90a", "gfx1030")
    soft.run(
        """
        import os, subprocess
        words = ["run", "noop_launch", "--device", "rocm:1", "--arg", "x=ones(4)"]
        subprocess.run([os.environ["OPDOCK"], *words], check=True)
        """,
        OPDOCK=str(BUILD / "core" / "cli" / "opdock"),
    )
    assert [one["device"] for one in soft.events("launch")] == [1]
    assert [one["device"] for one in soft.events("allocate")] == [1]


PROGRAM = """
struct Pair { float a; int b; };
extern "C" __global__ void fill(float* x, int n, float a, Pair pair) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = a + pair.a * pair.b;
}
"""


def test_kernels_compiled_for_rocm(machine):
    """The sizes come from the code object; the stream is the caller's and must belong to the
    device."""
    needs_hiprtc()
    soft = machine("gfx90a", "gfx1030")
    out = soft.run(
        """
        import os, struct
        module = opdock.compile(os.environ["PROGRAM"], device="rocm:0")
        fill = module.kernel("fill")
        print(fill.param_sizes, module.arch, module.compiler.split()[0])
        stream = new_stream()
        x = Array(100)
        pair = struct.pack("fi", 1.5, 3)
        fill(4, 256, x, 100, 2.0, pair, stream=stream)
        print(hex(stream), hex(x.data))
        for wrong in (lambda: fill(4, 256, x, 100, 2, b"1234567", stream=stream),
                      lambda: fill(4, 256, x, 100, 2, pair, stream=new_stream(1)),
                      lambda: fill(4, 256, Array(4, 1), 100, 2, pair),
                      lambda: fill(4, 256, x, 100, 2)):
            try:
                wrong()
            except opdock.OpdockError as error:
                print(type(error).__name__, str(error).split("; ")[0])
        print(opdock.compile(os.environ["PROGRAM"], arch="gfx908", kernels=["fill"]).arch)
        """,
        PROGRAM=PROGRAM,
    ).splitlines()
    assert out[0] == "[8, 4, 4, 8] gfx90a:sramecc+:xnack- hipRTC"
    stream, data = out[1].split()
    launch = soft.events("launch")
    assert len(launch) == 1 and launch[0]["stream"] == stream
    assert launch[0]["grid"] == [4, 1, 1] and launch[0]["block"] == [256, 1, 1]
    assert launch[0]["args"] == [
        value.hex()
        for value in (
            struct.pack("<Q", int(data, 16)),
            struct.pack("<i", 100),
            struct.pack("<f", 2),
            struct.pack("<fi", 1.5, 3),
        )
    ]
    assert out[2] == "ArgumentError fill(): argument 3: found bytes of 7 bytes, wanted 8 bytes"
    assert out[3].startswith("InvalidArgumentError") and "found a stream of rocm:1" in out[3]
    assert "found an array on rocm:1, wanted one on rocm:0" in out[4]
    assert "found 3 arguments after grid and block, wanted 4" in out[5]
    assert out[6] == "gfx908"
