# SPDX-License-Identifier: Apache-2.0
"""A GPU used only through its driver library, by ctypes: memory, copies, streams, events, graphs.

opdock.testing uses it where no framework can use the device. A call with a wrong argument, or on a
device that has failed, raises GpuError with the driver's own name of the error.
"""

import contextlib
import ctypes
import functools
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p

__tracebackhide__ = True  # pytest then shows the test's line, not this module's

#: DLPack's device types.
DEVICE_TYPES = {"cuda": 2, "rocm": 10}
_LIBRARIES = {
    "cuda": ["libcuda.so.1"],
    "rocm": ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"],
}
# HIP's names of the driver functions below; for all others "cu" becomes "hip".
_HIP_NAMES = {
    "cuDeviceGetCount": "hipGetDeviceCount",
    "cuMemAlloc_v2": "hipMalloc",
    "cuMemFree_v2": "hipFree",
    "cuMemGetInfo_v2": "hipMemGetInfo",
    "cuStreamCreate": "hipStreamCreateWithFlags",
    "cuStreamDestroy_v2": "hipStreamDestroy",
    "cuEventCreate": "hipEventCreateWithFlags",
    "cuEventDestroy_v2": "hipEventDestroy",
    "cuStreamBeginCapture_v2": "hipStreamBeginCapture",
    "cuCtxSynchronize": "hipDeviceSynchronize",
}
_TO_DEVICE, _TO_HOST = 1, 2  # hipMemcpyKind
_NON_BLOCKING = 1  # a stream that does not wait for the default one
_NO_TIMING = 2  # an event flag
_THREAD_LOCAL = 1  # capture mode


class GpuError(RuntimeError):
    """A call of the driver failed; `code` is its CUresult or hipError_t."""

    def __init__(self, call, code, name):
        super().__init__(f"{call} failed: {name} ({code})")
        self.code = code


class _Driver:
    """One driver library."""

    def __init__(self, kind, library):
        self.kind = kind
        self.library = library

    def _function(self, name):
        if self.kind == "rocm":
            name = _HIP_NAMES.get(name, "hip" + name.removeprefix("cu"))
        return name, getattr(self.library, name)

    def __call__(self, name, *arguments):
        """Calls the function with the CUDA name `name`; raises GpuError unless it returns 0."""
        name, function = self._function(name)
        code = function(*arguments)
        if code != 0:
            raise GpuError(name, code, self._error_name(code))

    def _error_name(self, code):
        if self.kind == "rocm":
            name = self.library.hipGetErrorName
            name.restype = c_char_p
            found = name(code)
        else:
            text = c_char_p()
            self.library.cuGetErrorName(code, byref(text))
            found = text.value
        return found.decode() if found else "an unknown error"


@functools.cache
def _driver(kind):
    """Returns (the driver, ""), or (None, the reason why there is none)."""
    problem = ""
    for name in _LIBRARIES[kind]:
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            problem = problem or str(error)
            continue
        driver = _Driver(kind, library)
        try:
            driver("cuInit", c_uint(0))
        except GpuError as error:
            return None, str(error)
        return driver, ""
    return None, problem


def count(kind):
    """Returns (number of devices, reason why there is none or ""). kind: "cuda" or "rocm"."""
    driver, problem = _driver(kind)
    if driver is None:
        return 0, problem
    found = c_int()
    try:
        driver("cuDeviceGetCount", byref(found))
    except GpuError as error:  # HIP reports an absent GPU as an error
        return 0, str(error)
    return found.value, "" if found.value else f"a {kind} driver without a GPU"


@functools.cache
def gpu(kind, index=0):
    """Returns the Gpu of that kind and index; raises RuntimeError if there is none."""
    return Gpu(kind, index)


class Gpu:
    """One device. Methods may be called from any thread; addresses and handles are ints."""

    def __init__(self, kind, index):
        found, problem = count(kind)
        if index >= found:
            raise RuntimeError(f"found no {kind}:{index} ({problem or f'{found} devices'})")
        self.kind, self.index = kind, index
        self._call = _driver(kind)[0]
        self._context = c_void_p()
        if kind == "cuda":
            self._call("cuDevicePrimaryCtxRetain", byref(self._context), c_int(index))

    def _on_device(self, name, *arguments):
        """Calls a driver function with this device current in the thread; restores the previous
        device."""
        if self.kind == "cuda":
            self._call("cuCtxPushCurrent_v2", self._context)
            try:
                self._call(name, *arguments)
            finally:
                self._call("cuCtxPopCurrent_v2", byref(c_void_p()))
            return
        before = c_int()
        self._call("cuGetDevice", byref(before))
        self._call("cuSetDevice", c_int(self.index))
        try:
            self._call(name, *arguments)
        finally:
            self._call("cuSetDevice", before)

    def _made(self, name, *arguments):
        handle = c_void_p()
        self._on_device(name, byref(handle), *arguments)
        return handle.value or 0

    # ---- memory

    def allocate(self, size):
        """Returns the address of `size` uninitialised bytes, a multiple of 256; 0 if size is 0."""
        return self._made("cuMemAlloc_v2", c_size_t(size)) if size else 0

    def free(self, address):
        """Frees the memory, after waiting for the device. Does nothing for address 0."""
        if address:
            self._on_device("cuMemFree_v2", c_void_p(address))

    def free_bytes(self):
        free, total = c_size_t(), c_size_t()
        self._on_device("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def to_device(self, address, host, size, stream=None):
        """Copies `size` bytes from the host address `host`.

        Without a stream, waits for the copy. With one, returns at once, and the host memory must
        stay unchanged until the copy is done.
        """
        self._copy("cuMemcpyHtoD", _TO_DEVICE, address, host, size, stream)

    def to_host(self, host, address, size, stream=None):
        self._copy("cuMemcpyDtoH", _TO_HOST, host, address, size, stream)

    def _copy(self, name, kind, to, source, size, stream):
        arguments = [c_void_p(to), c_void_p(source), c_size_t(size)]
        if self.kind == "rocm":
            name = "cuMemcpy" if stream is None else "cuMemcpyAsync"
            arguments.append(c_int(kind))
        else:
            name += "_v2" if stream is None else "Async_v2"
        if stream is not None:
            arguments.append(c_void_p(stream))
        self._on_device(name, *arguments)

    @contextlib.contextmanager
    def read_only(self, ranges, what):
        """Returns a context in which this thread's work on the device must not write to `ranges`.

        ranges: [(address, bytes)]. The software GPU reports such writes and calls the ranges
        `what`. Other GPUs do not check.
        """
        call = self._call
        name = "cuSoftReadOnly" if self.kind == "cuda" else "hipSoftReadOnly"
        if not hasattr(call.library, name):
            yield
            return
        addresses = (ctypes.c_uint64 * len(ranges))(*(address for address, _ in ranges))
        sizes = (ctypes.c_uint64 * len(ranges))(*(size for _, size in ranges))
        call("cuSoftReadOnly", addresses, sizes, c_uint(len(ranges)), what.encode())
        try:
            yield
        finally:
            call("cuSoftReadOnly", None, None, c_uint(0), b"")

    # ---- streams

    def stream(self):
        """Creates a stream that does not wait for the default stream; returns its handle."""
        return self._made("cuStreamCreate", c_uint(_NON_BLOCKING))

    def synchronize(self, stream=None):
        """Waits for a stream, or without one for the device. Raises the errors of the work that
        ran."""
        if stream is None:
            self._on_device("cuCtxSynchronize")
        else:
            self._on_device("cuStreamSynchronize", c_void_p(stream))

    def order(self, first, then):
        """Makes later work on stream `then` wait for the work enqueued on stream `first` so far."""
        event = self._made("cuEventCreate", c_uint(_NO_TIMING))
        self._on_device("cuEventRecord", c_void_p(event), c_void_p(first))
        self._on_device("cuStreamWaitEvent", c_void_p(then), c_void_p(event), c_uint(0))
        self._on_device("cuEventDestroy_v2", c_void_p(event))

    # ---- graphs

    def capture(self, stream, work):
        """Captures `stream` while it calls work(); returns the instantiated graph for
        launch_graph()."""
        self._on_device("cuStreamBeginCapture_v2", c_void_p(stream), c_int(_THREAD_LOCAL))
        graph = c_void_p()
        try:
            work()
        finally:
            self._on_device("cuStreamEndCapture", c_void_p(stream), byref(graph))
        if self.kind == "cuda":
            return self._made("cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0))
        return self._made("cuGraphInstantiate", graph, None, None, c_size_t(0))

    def launch_graph(self, graph, stream):
        self._on_device("cuGraphLaunch", c_void_p(graph), c_void_p(stream))
