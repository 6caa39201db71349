# SPDX-License-Identifier: Apache-2.0
"""Implements jit_load() for builders that derive from Opdock's or DeepSpeed's base class."""

import time

from opdock._errors import IncompatibleError
from opdock.compat.deepspeed import _build
from opdock.compat.deepspeed._environment import is_on
from opdock.compat.deepspeed._say import say
from opdock.compat.deepspeed._versions import torch_cuda_version


def _is_without_cuda(builder):
    """Returns whether the builder could use CUDA but torch cannot."""
    if not hasattr(builder, "compute_capability_args") or is_on("DS_SKIP_CUDA_CHECK"):
        return False
    return not builder.is_rocm_pytorch() and torch_cuda_version() is None


def jit_load(builder, verbose):
    """Builds the builder's module, or finds it in Opdock's cache, and imports it.

    verbose: print the seconds that it took. Raises IncompatibleError with is_compatible()'s reason
    or the compiler's first error. Ctrl-C stops a build. Returns the module.
    """
    # DeepSpeed does the same: sources() and the arguments may depend on build_for_cpu.
    if _is_without_cuda(builder):
        builder.build_for_cpu = True
    # Even without build tools, the cache may have a result that fits.
    if not builder.is_compatible(verbose) and not getattr(builder, "_lacks_tools", False):
        raise IncompatibleError(
            f"Unable to JIT load the {builder.name} op: "
            f"{builder.error_log or 'its is_compatible() says no, without a reason'}"
        )
    begin = time.monotonic()
    mode, builder.jit_mode = builder.jit_mode, True
    try:
        built = _build.build(builder)
    finally:
        builder.jit_mode = mode
    module = _build.load(built)
    if verbose:
        say(f"{builder.name} was loaded in {time.monotonic() - begin:.2f} s")
    return module
