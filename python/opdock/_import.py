# SPDX-License-Identifier: Apache-2.0
"""Makes arrays of a library's own type from memory that opdock allocated."""

import sys

from opdock._names import DTYPES


def from_dlpack_of(array):
    """Returns the from_dlpack function of the library that `array` belongs to, or raises
    TypeError."""
    namespace = getattr(array, "__array_namespace__", None)
    if namespace is not None:
        found = getattr(namespace(), "from_dlpack", None)
        if found is not None:
            return found
    for kind in type(array).__mro__:
        module = sys.modules.get(kind.__module__.partition(".")[0])
        found = getattr(module, "from_dlpack", None)
        if found is not None:
            return found
    kind = type(array)
    raise TypeError(
        f"found no from_dlpack for {kind.__module__}.{kind.__qualname__}, so that no result of its "
        "type can be made; pass out="
    )


def empty_cupy(shape, dtype, model):
    """Returns an uninitialised CuPy array from CuPy's pool, on model's device and the current
    stream.

    dtype: DLPack's (code, bits, lanes).
    """
    import cupy

    name = next(name for name, numbers in DTYPES.items() if numbers == dtype)
    same = model.dtype.name == name
    kind = model.dtype if same else cupy.dtype({"bool": "bool_"}.get(name, name))
    with model.device:
        return cupy.empty(shape, kind)
