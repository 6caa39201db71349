# SPDX-License-Identifier: Apache-2.0
"""Opens the library that records calls for autograd without entering Python.

It is compiled against libtorch's C++ interface, which promises nothing to the next release: the
build makes one for the torch that it finds, and it is used with exactly that one. Without it, the
kernels of _autograd.py record.
"""

import functools

import torch

from opdock import _opdock


def file():
    """Returns the name of the library's file, beside libopdock."""
    return f"libopdock_torch_autograd-{torch.__version__}.so"


@functools.cache
def problem():
    """Returns why calls are recorded in Python, or None. The first call opens the library."""
    from opdock.torch._register import register_gradient  # it imports this module

    abi = int(torch.compiled_with_cxx11_abi())
    build = f"{torch.__version__} {torch.version.git_version} {abi}"
    return _opdock.torch_open_recorder(file(), build, register_gradient)
