# SPDX-License-Identifier: Apache-2.0
"""Copies CPU torch tensors to a device, and the results of an op there back."""

import contextlib
import inspect
import os
import re

import torch

from opdock._author import driver

__tracebackhide__ = True  # of pytest: the line of the test is what matters


def is_soft():
    """Whether the driver libraries are the software GPU's stand-ins."""
    return bool(os.environ.get("OPDOCK_SOFTGPU"))


def torch_has(kind):
    """Whether this torch computes on "cuda" or "rocm", which it calls "cuda" too."""
    if is_soft() or not torch.cuda.is_available():
        return False
    return (kind == "rocm") == (torch.version.hip is not None)


def split(device):
    """("cuda", 1) of "cuda:1"."""
    kind, _, index = str(device).partition(":")
    return kind, int(index or 0)


def _storage(x):
    """All of the memory that x is a view of, as a tensor of its dtype."""
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())


class _ByTorch:
    """One storage and its views on a device that torch has."""

    def __init__(self, device):
        kind, index = split(device)
        self.device = f"cuda:{index}"
        self.storages = {}  # address -> (a CPU view, the whole on the device)

    def move(self, x, fresh=False):
        there = self.storages.setdefault(
            x.untyped_storage().data_ptr() if x.numel() else id(x),
            (x, _storage(x).to(self.device)),
        )[1]
        view = torch.empty(0, dtype=x.dtype, device=self.device).set_(there.untyped_storage())
        return view.as_strided(x.shape, x.stride(), x.storage_offset())

    def reading(self, tensors, what):
        return contextlib.nullcontext()  # this GPU does not check its memory

    def copy_back(self):
        for x, there in self.storages.values():
            _storage(x).copy_(there)


class _ByDriver:
    """The same through the driver library. A tensor that shares no memory with the others gets just
    what its elements need: whatever a kernel touches beside them shows on the software GPU."""

    def __init__(self, device, tensors=()):
        self.gpu = driver.gpu(*split(device))
        self.storages = {}  # of several views: address -> (bytes, DeviceArray)
        self.views = []
        addresses = {}
        for x in {id(x): x for x in tensors if x.numel()}.values():
            addresses.setdefault(x.untyped_storage().data_ptr(), []).append(x)
        self.shared = {address for address, views in addresses.items() if len(views) > 1}

    def move(self, x, fresh=False):
        from opdock._author.device_array import DeviceArray, allocate_like, to_gpu

        address = x.untyped_storage().data_ptr()
        if x.numel() and address in self.shared:
            if address not in self.storages:
                whole = torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage())
                self.storages[address] = (whole, to_gpu(whole, self.gpu))
            there = self.storages[address][1]
            offset = x.storage_offset() * x.element_size()
            view = DeviceArray(self.gpu, there.address + offset, x.shape, x.stride(), x.dtype)
            view.memory = there  # lives as long
            return view
        array = allocate_like(x, self.gpu) if fresh else to_gpu(x, self.gpu)
        self.views.append((x, array))
        return array

    def reading(self, tensors, what):
        """A context in which what this thread launches is not to write to these, [(x, array)]."""
        from opdock._author.device_array import reach

        ranges = [(array.address, reach(x)) for x, array in tensors if x.numel()]
        return self.gpu.read_only(ranges, what)

    def copy_back(self):
        for x, array in [*self.views, *self.storages.values()]:
            array.to_host(x)


def _mover(device, tensors=()):
    kind, _ = split(device)
    return _ByTorch(device) if torch_has(kind) else _ByDriver(device, tensors)


def move(x, device):
    """`x`, a CPU torch tensor, on the device, with its shape, strides, dtype and alignment.

    device: "cpu" (then it is x itself), "cuda", "rocm:1". Gives a torch tensor where torch has the
    device, else an object that opdock's functions take. Anything else than a tensor: itself.
    """
    if split(device)[0] == "cpu" or not isinstance(x, torch.Tensor):
        return x
    return _mover(device).move(x)


def to_cpu(x):
    """A result of an op as a CPU torch tensor of the same strides; a tuple or list of them; else
    `x` itself. Waits for the device."""
    if isinstance(x, (tuple, list)):
        return type(x)(map(to_cpu, x))
    if isinstance(x, torch.Tensor):
        return x.cpu()
    return x.to_host() if hasattr(x, "to_host") else x


def _tensors(values):
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _tensors(value)
        elif isinstance(value, torch.Tensor):
            yield value


def _only_read(op, args, keywords):
    """The tensors that the op's schema gives it to read, but for those that share memory with one
    that it may write. Of a function without a schema: none."""
    schema = getattr(op, "schema", None)
    if schema is None:
        return []
    written = {"out", *re.findall(r"\(\w!\)(?:\[\])?\??\s+(\w+)", schema)}
    try:
        arguments = inspect.signature(op).bind(*args, **keywords).arguments
    except TypeError:  # the op itself says what is wrong
        return []

    def storages(names):
        return {
            x.untyped_storage().data_ptr() for x in _tensors([arguments[name] for name in names])
        }

    taken = storages(written & arguments.keys())
    read = _tensors([arguments[name] for name in arguments.keys() - written])
    return [x for x in read if x.untyped_storage().data_ptr() not in taken]


def _device_of(x):
    kind, index = split(x.device)
    if isinstance(x, torch.Tensor) and kind == "cuda" and torch.version.hip:
        kind = "rocm"
    return kind, index


def on(device, op):
    """A function that calls `op` on the device with CPU torch tensors and returns such.

    Views of one tensor share memory on the device too. Results must lie on the device; one that was
    passed as `out` is the caller's tensor again. What the op wrote into its arguments is in the
    caller's tensors afterwards. `out` is handed over uninitialised where torch does not have the
    device, so that an element that is never written shows. What the schema does not mark as written
    is the op's only to read, and the software GPU finds who writes there. Waits for the device.
    """
    kind, index = split(device)
    if kind == "cpu":
        return op

    def call(*args, **keywords):
        mover = _mover(device, list(_tensors([*args, *keywords.values()])))
        moved = {}  # by id, so that one tensor given twice stays one

        def there(x, fresh=False):
            if isinstance(x, (tuple, list)):
                return type(x)(there(one, fresh) for one in x)
            if not isinstance(x, torch.Tensor):
                return x
            if id(x) not in moved:
                moved[id(x)] = (x, mover.move(x, fresh))
            return moved[id(x)][1]

        arguments = [there(x) for x in args]
        named = {name: there(x, name == "out") for name, x in keywords.items()}
        read = [moved[id(x)] for x in _only_read(op, args, keywords)]
        with mover.reading(read, f"an input of {getattr(op, 'schema', op)}"):
            found = op(*arguments, **named)
        results = found if isinstance(found, tuple) else (found,)
        for result in results:
            if hasattr(result, "device"):
                assert _device_of(result) == (kind, index), f"a result lies on {result.device}"
        mover.copy_back()
        own = {id(array): x for x, array in moved.values()}
        back = tuple(own[id(x)] if id(x) in own else to_cpu(x) for x in results)
        return back if isinstance(found, tuple) else back[0]

    return call
