# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's op builders, implemented by Opdock.

    from opdock.compat.deepspeed import FusedAdamBuilder
    FusedAdamBuilder().is_compatible(verbose=True)      # Opdock's verdict, and its reason
    FusedAdamBuilder().load().multi_tensor_adam(...)    # from a plugin: nothing is compiled

    from opdock.compat import deepspeed
    deepspeed.install()                                 # an unmodified DeepSpeed uses them

Opdock builds the sources of a subclass of OpBuilder or CUDAOpBuilder that defines sources().
Importing this package compiles, loads and probes nothing, and imports neither torch nor DeepSpeed.
"""

from opdock.compat.deepspeed._builder import DEFAULT_TORCH_EXTENSION_PATH, OpBuilder
from opdock.compat.deepspeed._cuda import (
    CPUOpBuilder,
    CUDAOpBuilder,
    TorchCPUOpBuilder,
    get_default_compute_capabilities,
)
from opdock.compat.deepspeed._install import install, installed, uninstall
from opdock.compat.deepspeed._ops import ALL_OPS, BUILDERS, wanted_extensions
from opdock.compat.deepspeed._report import report
from opdock.compat.deepspeed._versions import (
    CUDAMismatchException,
    MissingCUDAException,
    assert_no_cuda_mismatch,
    cuda_minor_mismatch_ok,
    installed_cuda_version,
)

globals().update(BUILDERS)


def __getattr__(name):
    # Only these names need setuptools, so it is imported here.
    if name in ("BuildExtension", "OpdockExtension"):
        from opdock.compat.deepspeed import _extension

        return getattr(_extension, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ALL_OPS",
    "BuildExtension",
    "CPUOpBuilder",
    "CUDAMismatchException",
    "CUDAOpBuilder",
    "DEFAULT_TORCH_EXTENSION_PATH",
    "MissingCUDAException",
    "OpBuilder",
    "OpdockExtension",
    "TorchCPUOpBuilder",
    "assert_no_cuda_mismatch",
    "cuda_minor_mismatch_ok",
    "get_default_compute_capabilities",
    "install",
    "installed",
    "installed_cuda_version",
    "report",
    "uninstall",
    "wanted_extensions",
    *BUILDERS,
]
