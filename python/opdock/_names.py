# SPDX-License-Identifier: Apache-2.0
"""Converts dtypes and devices as users write them to DLPack's numbers, and checks text
arguments."""

import functools
import os
import sys

from opdock._errors import ArgumentError, InvalidArgumentError

_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6

#: name -> (DLPack code, bits, lanes)
DTYPES = {
    "bool": (_BOOL, 8, 1),
    "bfloat16": (_BFLOAT, 16, 1),
    "complex32": (_COMPLEX, 32, 1),
    "complex64": (_COMPLEX, 64, 1),
    "complex128": (_COMPLEX, 128, 1),
    "float8_e3m4": (7, 8, 1),
    "float8_e4m3": (8, 8, 1),
    "float8_e4m3b11fnuz": (9, 8, 1),
    "float8_e4m3fn": (10, 8, 1),
    "float8_e4m3fnuz": (11, 8, 1),
    "float8_e5m2": (12, 8, 1),
    "float8_e5m2fnuz": (13, 8, 1),
    "float8_e8m0fnu": (14, 8, 1),
    "float4_e2m1fn_x2": (17, 4, 2),
    **{f"int{bits}": (_INT, bits, 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (_UINT, bits, 1) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (_FLOAT, bits, 1) for bits in (16, 32, 64)},
}

_DEVICE_TYPES = {"cpu": 1, "cuda": 2, "rocm": 10, "hip": 10}


@functools.lru_cache(maxsize=256)
def _dtype(thing):
    if isinstance(thing, str):
        return DTYPES.get(thing)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.dtype):
        return DTYPES.get(str(thing).removeprefix("torch."))
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(thing, (numpy.dtype, type)):
        try:
            found = numpy.dtype(thing)
        except TypeError:
            return None
        return DTYPES.get(found.name) if found.isnative else None
    return None


def dtype(thing):
    """Returns (code, bits, lanes) of a torch or NumPy dtype or of a dtype's name; None for
    others."""
    try:
        return _dtype(thing)
    except TypeError:  # not hashable
        return None


def _torch_device(kind, index):
    """Returns (device type, index) as torch means them: a ROCm torch calls its devices "cuda", and
    a device without an index is the current one."""
    torch = sys.modules.get("torch")
    if torch is None:
        return _DEVICE_TYPES[kind], index or 0
    if kind == "cuda" and torch.version.hip:
        kind = "rocm"
    if index is None:
        index = torch.cuda.current_device() if torch.cuda.is_initialized() else 0
    return _DEVICE_TYPES[kind], index


def device(thing):
    """Returns (DLPack device type, index) of a torch.device, a text such as "cuda:1", or such a
    pair; None for anything else."""
    if isinstance(thing, tuple):
        whole = len(thing) == 2 and all(isinstance(number, int) for number in thing)
        return (int(thing[0]), int(thing[1])) if whole else None
    if isinstance(thing, str):
        kind, colon, number = thing.partition(":")
        if colon and not number.isdigit():
            return None
        index = int(number) if colon else None
    else:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(thing, torch.device):
            return None
        kind, index = thing.type, thing.index
    if kind == "cpu":
        return 1, 0
    return _torch_device(kind, index) if kind in _DEVICE_TYPES else None


def text(function, argument, value, wanted="a str"):
    """Returns `value` if it is a str without NUL characters, which libopdock's C API needs. Raises
    ArgumentError if it is no str, InvalidArgumentError if it has a NUL."""
    if not isinstance(value, str):
        raise ArgumentError(
            f"{function}(): argument {argument!r}: found an object of type {type(value).__name__}, "
            f"wanted {wanted}"
        )
    if "\0" in value:
        raise InvalidArgumentError(
            f"{function}(): argument {argument!r}: found {value!r}, wanted {wanted} without NUL "
            "characters; remove them"
        )
    return value


def path(function, argument, value):
    """Returns the path as a str. Raises as text() does."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return text(function, argument, value, "a path: a str or an os.PathLike of one")


def suggestion(name, known):
    """Returns "; did you mean 'scale'?" if a name in `known` ("x, scale, out") is similar, else
    ""."""
    import difflib

    names = {known_name.lower(): known_name for known_name in known.split(", ")}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    return f"; did you mean {names[near[0]]!r}?" if near else ""
