# SPDX-License-Identifier: Apache-2.0
"""Compiles CUDA and HIP kernels at run time (NVRTC, hipRTC) and launches them.

saxpy = opdock.compile('''
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}''').kernel("saxpy")
saxpy((n + 255) // 256, 256, n, 2.0, x, y)      # x, y: torch or CuPy arrays
"""

import sys

from opdock import _names, _opdock
from opdock._errors import ArgumentError, OpdockError
from opdock._runtime import default, parse

_CUDA, _ROCM = 2, 10


def _refuse(argument, found, wanted):
    name = type(found).__name__
    raise ArgumentError(
        f"compile(): argument '{argument}': found an object of type {name}, wanted {wanted}"
    )


def _texts(argument, given):
    if isinstance(given, str):
        _refuse(argument, given, "a list of str")
    texts = list(given)
    for text in texts:
        if not isinstance(text, str):
            _refuse(argument, text, "a list of str")
    return texts


def _device_numbers(device):
    """Returns DLPack's (device type, index) of the user's `device`; an int is a GPU's index."""
    if isinstance(device, int) and not isinstance(device, bool):
        return _gpu_type(), device
    numbers = _names.device(device)
    if numbers is None or numbers[0] not in (_CUDA, _ROCM):
        raise ArgumentError(
            f"compile(): argument 'device': found {device!r}, wanted a GPU such as 'cuda:0', "
            "'rocm:0' or 0"
        )
    return numbers


def _gpu_type():
    """Returns the vendor whose GPUs the program's torch or CuPy uses; NVIDIA without either."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return _ROCM if torch.version.hip else _CUDA
    cupy = sys.modules.get("cupy")
    if cupy is not None and cupy.cuda.runtime.is_hip:
        return _ROCM
    return _ROCM if torch is not None and torch.version.hip else _CUDA


def _current_device():
    """Returns the index of torch's or CuPy's current GPU; 0 if the program uses neither."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.current_device()
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        return cupy.cuda.runtime.getDevice()
    return 0


def _current_stream(device):
    """Returns the handle of torch's or CuPy's current stream; 0, the default stream, without
    either."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.current_stream(device).cuda_stream
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        return cupy.cuda.get_current_stream().ptr
    return 0


class Module:
    """A compiled program and its kernels, as opdock.compile() returns it."""

    def __init__(self, source, options, headers, kernels, device, arch, name):
        self._given = (source, name, headers, options, kernels)
        self._arch = arch
        if device is None:
            is_amd = arch is not None and arch.startswith("gfx")
            own = _ROCM if is_amd else _CUDA if arch is not None else _gpu_type()
            device = own, None
        self._type, self._device_given = device
        self._on = {}  # device, or None for an image without a GPU -> _opdock._CompiledModule
        self._kernels = {}
        self._name = name

    def kernel(self, name):
        """Returns the kernel called `name`, as C++ spells it: "saxpy", "ns::f<float, 4>".

        The kernel is compiled, or taken from the cache, and loaded now on the module's device or
        else the current one. On any other device that happens at its first launch there. A kernel
        that was not named in compile() gets an image of its own, with its own copies of the
        __device__ variables. Raises NotFoundError if the program has no such kernel,
        InvalidArgumentError if it does not compile, ArgumentError if `name` is no str.
        """
        if name not in self._kernels:
            if not isinstance(name, str):
                raise ArgumentError(
                    f"kernel(): found an object of type {type(name).__name__}, wanted a str"
                )
            device = -1 if self._device_given is None else self._device_given
            kernel = _opdock._make_kernel(self, name, self._type, device)
            kernel._prepare(_current_device() if device < 0 else device)
            self._kernels[name] = kernel
        return self._kernels[name]

    @property
    def image(self):
        """The compiled image as bytes: a cubin, PTX for an architecture such as compute_90, or a
        code object for AMD's GPUs."""
        return self._image()[0]

    @property
    def arch(self):
        """The architecture that the image is for: "sm_90a", "gfx90a:sramecc+:xnack-"."""
        return self._image()[1]

    @property
    def compiler(self):
        """The compiler that made the image: "NVRTC 12.9", "hipRTC 6.2"."""
        return self._image()[2]

    @property
    def from_cache(self):
        """Whether the image came from the cache, so that no compiler ran."""
        return self._image()[3]

    @property
    def log(self):
        """The compiler's warnings; an empty text if the image came from the cache."""
        return self._image()[4]

    def _image(self):
        return _with_reasons(self._compiled(self._default()).image)

    def _default(self):
        if self._arch is not None and self._device_given is None:
            return None
        return _current_device() if self._device_given is None else self._device_given

    def _compiled(self, device):
        found = self._on.get(device)
        if found is None:
            index = -1 if device is None else device
            found = _with_reasons(
                _opdock._CompiledModule, default(), *self._given, self._type, index, self._arch
            )
            self._on[device] = found
        return found

    # ---- called by _opdock.Kernel

    def _load(self, name, device):
        return _with_reasons(self._compiled(device).kernel, name)

    def _device(self, _):
        return _current_device()

    def _stream(self, device):
        return _current_stream(device)

    def __repr__(self):
        return f"<opdock module {self._name}>"


def _with_reasons(function, *args):
    """Returns function(*args); fills in the `reasons` of an OpdockError that it raises."""
    try:
        return function(*args)
    except OpdockError as error:
        error.reasons = error.reasons or parse(_opdock._compile_reasons_json())
        raise


def compile(
    source, *, options=(), headers=None, kernels=(), device=None, arch=None, name="program.cu"
):
    """Compiles CUDA C++ with NVRTC, or HIP C++ with hipRTC; returns a Module with callable kernels.

    source: the program's text. options: the compiler's arguments, such as "-DN=4" or
    "--use_fast_math"; the default standard is C++17. headers: {name: text}, which #include finds
    before all others; the device header "opdock/device.cuh" is always available. kernels: names of
    the kernels to compile now, into one image; without any, the first call of Module.kernel()
    compiles. device: such as "cuda:1", "rocm:0" or 1; by default each kernel runs where its
    arguments are, on AMD's GPUs if torch or CuPy is built for them. arch: "sm_90a", "compute_90"
    (PTX) or "gfx90a", instead of exactly the device's architecture; with arch and without device no
    GPU is needed, and only the image can be used. name: the program's file name in the compiler's
    messages.

    Images are cached on disk by content, so the next process does not compile. Raises
    InvalidArgumentError, with the compiler's messages, if the program does not compile, or if
    `arch` is not an architecture; IncompatibleError if there is no compiler for this GPU and
    driver, or OPDOCK_JIT=never forbids compiling; ArgumentError for an argument of a wrong type.
    """
    if not isinstance(source, str):
        _refuse("source", source, "a str")
    texts = []
    for header, text in dict(headers or {}).items():
        if not isinstance(header, str) or not isinstance(text, str):
            _refuse("headers", header if not isinstance(header, str) else text, "a dict of str")
        texts.append((header, text))
    if not isinstance(name, str):
        _refuse("name", name, "a str")
    if arch is not None and not isinstance(arch, str):
        _refuse("arch", arch, "a str such as 'sm_90a'")
    numbers = None if device is None else _device_numbers(device)
    names = _texts("kernels", kernels)
    module = Module(source, _texts("options", options), texts, names, numbers, arch, name)
    if arch is not None:
        module._compiled(None)  # checks arch; compiles nothing
    if names:
        module._image()
    return module
