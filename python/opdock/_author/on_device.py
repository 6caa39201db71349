# SPDX-License-Identifier: Apache-2.0
"""Copies CPU torch tensors to a device and an op's results back, for opdock.testing."""

import contextlib
import inspect
import os
import re

import torch

from opdock._author import driver

__tracebackhide__ = True  # pytest then shows the test's line, not this module's


def is_soft():
    """Returns whether the driver libraries are the software GPU's replacements."""
    return bool(os.environ.get("OPDOCK_SOFTGPU"))


def torch_has(kind):
    """Returns whether this torch can use `kind`, "cuda" or "rocm" (which torch calls "cuda"
    too)."""
    if is_soft() or not torch.cuda.is_available():
        return False
    return (kind == "rocm") == (torch.version.hip is not None)


def split(device):
    """Returns (kind, index) of a device: ("cuda", 1) for "cuda:1"."""
    kind, _, index = str(device).partition(":")
    return kind, int(index or 0)


def _storage(x):
    """Returns the whole storage that x is a view of, as a tensor of x's dtype."""
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())


class _ByTorch:
    """Moves storages and their views to a device that torch can use."""

    def __init__(self, device):
        kind, index = split(device)
        self.device = f"cuda:{index}"
        self.storages = {}  # address -> (a CPU view, its storage on the device)

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
    """Does the same through the driver library. A tensor that shares no memory with the others gets
    only the memory of its elements, so that the software GPU reports every access outside of
    them."""

    def __init__(self, device, tensors=()):
        self.gpu = driver.gpu(*split(device))
        self.storages = {}  # with several views: address -> (bytes, DeviceArray)
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
            view.memory = there  # keeps the memory alive
            return view
        array = allocate_like(x, self.gpu) if fresh else to_gpu(x, self.gpu)
        self.views.append((x, array))
        return array

    def reading(self, tensors, what):
        """Returns a context in which this thread's launches must not write to `tensors`, [(x,
        array)]."""
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
    """Copies the CPU torch tensor `x` to the device; keeps its shape, strides, dtype and alignment.

    device: "cpu" (which returns x itself), "cuda", "rocm:1". Returns a torch tensor if torch has
    the device, else an object that opdock's functions accept. Returns anything that is no tensor
    unchanged.
    """
    if split(device)[0] == "cpu" or not isinstance(x, torch.Tensor):
        return x
    return _mover(device).move(x)


def to_cpu(x):
    """Copies an op's result to a CPU torch tensor of the same strides; a tuple or list likewise,
    element by element. Returns anything else unchanged. Waits for the device."""
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
    """Returns the tensor arguments that the op may only read by its schema, without those that
    share memory with one that it may write. A function without a schema has none."""
    schema = getattr(op, "schema", None)
    if schema is None:
        return []
    written = {"out", *re.findall(r"\(\w!\)(?:\[\])?\??\s+(\w+)", schema)}
    try:
        arguments = inspect.signature(op).bind(*args, **keywords).arguments
    except TypeError:  # the call of the op will report it
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
    """Returns a function that calls `op` on the device, with CPU torch tensors as arguments and
    results.

    Views of one tensor share memory on the device too. Results must be on the device; a result that
    was passed as `out` is the caller's tensor again. After the call the caller's tensors have the
    values that the op wrote into its arguments. Where torch does not have the device, `out` is
    passed uninitialised, so that an element that is never written shows. Arguments that the schema
    does not mark as written are read-only, and the software GPU reports a write to them. Waits for
    the device.
    """
    kind, index = split(device)
    if kind == "cpu":
        return op

    def call(*args, **keywords):
        mover = _mover(device, list(_tensors([*args, *keywords.values()])))
        moved = {}  # by id, so that a tensor passed twice is moved once

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
