# SPDX-License-Identifier: Apache-2.0
"""Opens the library that records calls for autograd without entering Python.

It is compiled against libtorch's C++ interface, which promises nothing to the next release: the
build makes one for the torch that it finds, and it is used with exactly that one. Without it, the
kernels of _autograd.py record.
"""

import torch

from opdock import _opdock

_problem = "libopdock_torch has no guard for operators here (_library.py)"


def file():
    """Returns the name of the library's file, beside libopdock."""
    return f"libopdock_torch_autograd-{torch.__version__}.so"


def open_library(register_gradient):
    """Opens the library for the operators that are implemented from now on."""
    global _problem
    abi = int(torch.compiled_with_cxx11_abi())
    build = f"{torch.__version__} {torch.version.git_version} {abi}"
    _problem = _opdock.torch_open_recorder(file(), build, register_gradient)


def problem():
    """Returns why calls are recorded in Python, or None."""
    return _problem
