# SPDX-License-Identifier: Apache-2.0
"""Who computes the chains of formulas_chains.py, beside Opdock: torch, torch.compile, CuPy's fuse,
MLX's compile and NumExpr.

Each maker takes a chain and its tensors, and returns a Peer. A chain that a peer cannot have raises
an error whose first line says why."""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy
import peers
import torch
from formulas_chains import many

import opdock


class Peer(NamedTuple):
    """A function to time, without arguments. results(of its value) returns them as torch tensors.
    wall: it cannot be timed by torch's events; wall(count) returns the seconds of `count` calls."""

    call: Callable
    results: Callable = many
    wall: Callable | None = None


def opdock_peer(chain, tensors):
    function, own = opdock.formula(chain.text, chain.schema), chain.fresh(tensors)
    return Peer(lambda: function(*own))


def torch_peer(chain, tensors):
    own = chain.fresh(tensors)
    return Peer(lambda: chain.torch(*own))


def compiled_peer(mode):
    """Returns the maker of torch.compile's peer in one of its modes."""

    def make(chain, tensors):
        own = chain.fresh(tensors)
        function = torch.compile(chain.torch, dynamic=False, mode=mode)
        return Peer(lambda: function(*own))

    return make


class Arrays:
    """What Chain.arrays needs of a module like NumPy. dtype: the results'."""

    def __init__(self, module, erf, columns, number=numpy.float32):
        self.columns, self.erf, self.number = columns, erf, number
        self.exp, self.sqrt = module.exp, module.sqrt
        self.maximum, self.minimum = module.maximum, module.minimum
        self.rint = getattr(module, "rint", None) or module.round
        # CuPy's fuse has no keepdims.
        self.amax = lambda x: module.max(x, axis=1)[:, None]
        self.sum = lambda x: module.sum(x, axis=1)[:, None]


def width(chain, tensors):
    """Returns the number of columns of a chain's shape."""
    return max(x.shape[-1] for x in tensors)


def cupy_peer(chain, tensors):
    """The fused function casts its results to the dtype that is timed, as all others do."""
    import cupy
    from cupyx.scipy.special import erf

    own = chain.fresh(tensors)
    dtype = numpy.dtype(str(own[-1].dtype).removeprefix("torch."))
    arrays = tuple(cupy.from_dlpack(x) for x in own)
    xp = Arrays(cupy, erf, width(chain, tensors))

    def of(*given):
        found = tuple(y.astype(dtype) for y in many(chain.arrays(xp, *given)))
        if not chain.in_place:
            return found if len(found) > 1 else found[0]
        for target, value in zip(given, found, strict=False):
            target[...] = value
        return None

    function = cupy.fuse(kernel_name=chain.name)(of)

    def results(found):
        of_call = arrays[: chain.in_place] if chain.in_place else many(found)
        return tuple(torch.from_dlpack(y) for y in of_call)

    return Peer(lambda: function(*arrays), results)


def mlx_peer(chain, tensors):
    """MLX has a stream of its own, and arrays that never change: Adam's update is new arrays."""
    import mlx.core as mx

    if not mx.is_available(mx.gpu):
        raise RuntimeError("finds no GPU")
    dtype = getattr(mx, str(tensors[-1].dtype).removeprefix("torch."))
    xp = Arrays(mx, mx.erf, width(chain, tensors), number=float)

    def array(x):
        if x.ndim == 2 and not x.is_contiguous() and x.t().is_contiguous():
            return array(x.t()).T
        if x.dtype == torch.int8:
            return mx.array(x.cpu().numpy())
        return mx.array(x.float().cpu().numpy()).astype(getattr(mx, str(x.dtype)[6:]))

    arrays = [array(x) for x in tensors]
    mx.eval(arrays)
    function = mx.compile(lambda *given: [y.astype(dtype) for y in many(chain.arrays(xp, *given))])

    def call():
        found = function(*arrays)
        mx.eval(found)
        return found

    def results(found):
        return tuple(
            torch.from_numpy(numpy.array(y.astype(mx.float32))).to(tensors[-1].dtype) for y in found
        )

    def wall(count):
        mx.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            mx.async_eval(function(*arrays))
        mx.synchronize()
        return time.perf_counter() - start

    return Peer(call, results, wall)


def numexpr_peer(chain, tensors):
    import numexpr

    if isinstance(chain.numexpr, str):
        raise TypeError(chain.numexpr)
    numexpr.set_num_threads(torch.get_num_threads())
    text, constants = chain.numexpr
    own = chain.fresh(tensors)
    names = {f"a{i}": x.numpy() for i, x in enumerate(own)}
    names |= {f"c{i}": numpy.float32(c) for i, c in enumerate(constants)}
    steps = [step.strip().rpartition(" = ") for step in text.split(";")]

    def call():
        return [
            numexpr.evaluate(step, local_dict=names, out=names[target] if target else None)
            for target, _, step in steps
        ]

    def results(found):
        own_results = own[: chain.in_place] if chain.in_place else found
        return tuple(torch.as_tensor(y) for y in own_results)

    return Peer(call, results)


COMPILED = {name: compiled_peer(mode) for name, mode in peers.MODES.items()}
ON_GPU = {"opdock": opdock_peer, "torch": torch_peer, **COMPILED}
ON_GPU |= {"CuPy": cupy_peer, "MLX": mlx_peer}
ON_CPU = {"opdock": opdock_peer, "torch": torch_peer, "torch.compile": COMPILED["torch.compile"]}
ON_CPU |= {"numexpr": numexpr_peer}
# {peer: (the module that it needs, the dtypes that it has)}
NEEDS = {
    "CuPy": ("cupy", ("float32", "float16")),
    "MLX": ("mlx.core", ("float32", "float16", "bfloat16")),
    "numexpr": ("numexpr", ("float32",)),
}
