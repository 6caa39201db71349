# SPDX-License-Identifier: Apache-2.0
"""Arrays on a GPU that no framework reaches, and copies of CPU torch tensors to it and back."""

import contextlib
import ctypes
import weakref

import torch

from opdock._author import driver
from opdock._names import DTYPES

__tracebackhide__ = True  # of pytest: the line of the test is what matters

_ALIGNMENT = 256  # of what the driver allocates; a tensor's address keeps its rest


class _Tensor(ctypes.Structure):  # DLTensor
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):  # DLManagedTensorVersioned
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_NAME, _USED = b"dltensor_versioned", b"used_dltensor_versioned"
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_rename_capsule = ctypes.pythonapi.PyCapsule_SetName
_rename_capsule.argtypes = [ctypes.py_object, ctypes.c_char_p]


class _Namespace:
    @staticmethod
    def from_dlpack(exported):
        """How opdock makes results of DeviceArray's type: out of memory that it allocated."""
        capsule = exported.__dlpack__(max_version=(1, 0))
        managed = ctypes.cast(_capsule_pointer(capsule, _NAME), ctypes.POINTER(_Managed)).contents
        _rename_capsule(capsule, _USED)
        tensor = managed.tensor
        kind = next(k for k, v in driver.DEVICE_TYPES.items() if v == tensor.device_type)
        numbers = (tensor.code, tensor.bits, tensor.lanes)
        name = next(name for name, value in DTYPES.items() if value == numbers)
        array = DeviceArray(
            driver.gpu(kind, tensor.device_index),
            (tensor.data or 0) + tensor.byte_offset,
            tuple(tensor.shape[: tensor.ndim]),
            tuple(tensor.strides[: tensor.ndim]),
            getattr(torch, name),
        )
        weakref.finalize(array, managed.deleter, ctypes.addressof(managed))
        return array


class DeviceArray:
    """Memory on a GPU as an array that opdock takes: it has __dlpack__ and __dlpack_device__.

    address: of its first element. shape, strides: in elements. dtype: torch's. stream: of the
    work that makes its content, for which a consumer's stream waits; None: the content is complete.
    Must outlive what is made from it.
    """

    def __init__(self, gpu, address, shape, strides, dtype, stream=None):
        self.gpu, self.address, self.dtype = gpu, address, dtype
        self.shape, self.strides, self.stream = tuple(shape), tuple(strides), stream
        self._exported = []

    @property
    def device(self):
        return f"{self.gpu.kind}:{self.gpu.index}"

    def __array_namespace__(self, api_version=None):
        return _Namespace

    def __dlpack_device__(self):
        return driver.DEVICE_TYPES[self.gpu.kind], self.gpu.index

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if self.stream is not None and stream not in (None, -1):
            # In CUDA's protocol 1 is the default stream, for ROCm 0.
            self.gpu.order(self.stream, 0 if stream in (0, 1) else stream)
        code, bits, lanes = DTYPES[str(self.dtype).removeprefix("torch.")]
        numbers = ctypes.c_int64 * len(self.shape)
        shape, strides = numbers(*self.shape), numbers(*self.strides)
        managed = _Managed(major=1, minor=0)
        managed.tensor = _Tensor(
            *(self.address, *self.__dlpack_device__(), len(self.shape), code, bits, lanes),
            *(shape, strides, 0),
        )
        # Kept here, because a deleter in Python could not run while an exception is being raised.
        self._exported.append((managed, shape, strides))
        return _new_capsule(ctypes.addressof(managed), _NAME, None)

    def to_host(self, out=None):
        """A CPU torch tensor of its values, shape and strides; or into `out`, of the same layout.
        Waits for the device. Only its elements are read, not what lies between them."""
        self.gpu.synchronize()
        if out is None:
            out = torch.empty_strided(self.shape, self.strides, dtype=self.dtype)
        for begin, size in runs(out):
            self.gpu.to_host(out.data_ptr() + begin, self.address + begin, size)
        return out


def runs(x):
    """[(offset, bytes)] from x's first element: the stretches of memory that its elements fill."""
    if x.numel() == 0:
        return []
    size = x.element_size()
    dims = sorted(
        (stride, length) for length, stride in zip(x.shape, x.stride(), strict=True) if length > 1
    )
    dims = [dim for dim in dims if dim[0] != 0]  # expanded: the same memory again
    together = 1  # elements from the first that lie side by side
    while dims and dims[0][0] == together:
        together *= dims.pop(0)[1]
    offsets = torch.zeros(1, dtype=torch.int64)
    for stride, length in dims:
        offsets = (offsets[:, None] + torch.arange(length) * stride).reshape(-1)
    offsets = offsets.unique()  # sorted
    return [(int(offset) * size, together * size) for offset in offsets]


def reach(x):
    """How many bytes there are from x's first element to the end of its last."""
    last = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return (last + 1) * x.element_size() if x.numel() else 0


def allocate_like(x, gpu):
    """A DeviceArray with x's shape, strides and dtype, its address as far from a multiple of 256
    bytes as x's storage offset says. Only as long as x's elements reach: what is outside, and
    between them, is uninitialised or guarded. Freed with the array."""
    size = reach(x)
    rest = x.storage_offset() * x.element_size() % _ALIGNMENT
    memory = gpu.allocate(size + rest) if size else 0
    array = DeviceArray(gpu, memory + rest if size else 0, x.shape, x.stride(), x.dtype)
    weakref.finalize(array, _free, gpu, memory)
    return array


def _free(gpu, memory):
    with contextlib.suppress(driver.GpuError):  # the device has failed, and the test has seen it
        gpu.free(memory)


def to_gpu(x, gpu, stream=None):
    """Copies a CPU torch tensor. stream: enqueued there; x must stay as it is until it is done."""
    array = allocate_like(x, gpu)
    array.stream = stream
    for begin, size in runs(x):
        gpu.to_device(array.address + begin, x.data_ptr() + begin, size, stream)
    return array
