# SPDX-License-Identifier: Apache-2.0
"""Arrays on a GPU that no framework can use, and copies of CPU torch tensors to and from them."""

import contextlib
import ctypes
import weakref

import torch

from opdock._author import driver
from opdock._names import DTYPES

__tracebackhide__ = True  # pytest then shows the test's line, not this module's

_ALIGNMENT = 256  # alignment of driver allocations; see allocate_like()


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
        """Makes a DeviceArray from memory that opdock allocated: opdock calls this for results."""
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
    """Memory on a GPU as an array that opdock accepts: it has __dlpack__ and __dlpack_device__.

    address: that of the first element. shape, strides: in elements. dtype: torch's. stream: the
    stream whose work computes the content, which a consumer's stream waits for; None if the content
    is complete. The array must outlive what is made from it.
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
            # The default stream is 1 in the array API's protocol for CUDA, and 0 for ROCm.
            self.gpu.order(self.stream, 0 if stream in (0, 1) else stream)
        code, bits, lanes = DTYPES[str(self.dtype).removeprefix("torch.")]
        numbers = ctypes.c_int64 * len(self.shape)
        shape, strides = numbers(*self.shape), numbers(*self.strides)
        managed = _Managed(major=1, minor=0)
        managed.tensor = _Tensor(
            *(self.address, *self.__dlpack_device__(), len(self.shape), code, bits, lanes),
            *(shape, strides, 0),
        )
        # Keep these with the array: a deleter written in Python could not run while an exception is
        # being raised.
        self._exported.append((managed, shape, strides))
        return _new_capsule(ctypes.addressof(managed), _NAME, None)

    def to_host(self, out=None):
        """Copies the values to a CPU torch tensor of the same shape and strides, or to `out`, which
        must have that layout; returns it. Waits for the device. Reads only the elements, not the
        gaps between them."""
        self.gpu.synchronize()
        if out is None:
            out = torch.empty_strided(self.shape, self.strides, dtype=self.dtype)
        for begin, size in runs(out):
            self.gpu.to_host(out.data_ptr() + begin, self.address + begin, size)
        return out


def runs(x):
    """Returns [(offset, size)], in bytes from x's first element: the ranges that x's elements
    fill."""
    if x.numel() == 0:
        return []
    size = x.element_size()
    dims = sorted(
        (stride, length) for length, stride in zip(x.shape, x.stride(), strict=True) if length > 1
    )
    # A dimension of stride 0 (expanded) repeats the same memory.
    dims = [dim for dim in dims if dim[0] != 0]
    together = 1  # number of adjacent elements
    while dims and dims[0][0] == together:
        together *= dims.pop(0)[1]
    offsets = torch.zeros(1, dtype=torch.int64)
    for stride, length in dims:
        offsets = (offsets[:, None] + torch.arange(length) * stride).reshape(-1)
    offsets = offsets.unique()  # sorted
    return [(int(offset) * size, together * size) for offset in offsets]


def reach(x):
    """Returns the number of bytes from the start of x's first element to the end of its last."""
    last = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return (last + 1) * x.element_size() if x.numel() else 0


def allocate_like(x, gpu):
    """Returns a DeviceArray with x's shape, strides and dtype.

    Its address has the same remainder modulo 256 bytes as x's storage offset. The memory is only as
    long as x's elements need; the gaps are uninitialised, and the software GPU guards what is
    outside. The memory is freed with the array.
    """
    size = reach(x)
    rest = x.storage_offset() * x.element_size() % _ALIGNMENT
    memory = gpu.allocate(size + rest) if size else 0
    array = DeviceArray(gpu, memory + rest if size else 0, x.shape, x.stride(), x.dtype)
    weakref.finalize(array, _free, gpu, memory)
    return array


def _free(gpu, memory):
    # If the device has failed, the test has reported that already.
    with contextlib.suppress(driver.GpuError):
        gpu.free(memory)


def to_gpu(x, gpu, stream=None):
    """Copies a CPU torch tensor to a DeviceArray. stream: where the copy is enqueued; x must not
    change until the copy is done."""
    array = allocate_like(x, gpu)
    array.stream = stream
    for begin, size in runs(x):
        gpu.to_device(array.address + begin, x.data_ptr() + begin, size, stream)
    return array
