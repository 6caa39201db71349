# SPDX-License-Identifier: Apache-2.0
"""jit_load() for builders on Opdock's base and on DeepSpeed's."""

import time

from opdock._errors import IncompatibleError
from opdock.compat.deepspeed import _build
from opdock.compat.deepspeed._environment import is_on
from opdock.compat.deepspeed._say import say
from opdock.compat.deepspeed._versions import torch_cuda_version


def _is_without_cuda(builder):
    """Whether a builder that could use CUDA has a torch that cannot."""
    if not hasattr(builder, "compute_capability_args") or is_on("DS_SKIP_CUDA_CHECK"):
        return False
    return not builder.is_rocm_pytorch() and torch_cuda_version() is None


def jit_load(builder, verbose):
    """Builds the builder's module, or finds it in Opdock's cache, and imports it.

    verbose: says the seconds. Raises IncompatibleError with what is_compatible() says against it,
    or the compiler's first error. Ctrl-C stops a build.
    """
    # As DeepSpeed's own: sources() and the arguments may depend on it.
    if _is_without_cuda(builder):
        builder.build_for_cpu = True
    # Without tools, what others have built with them and left in the cache may still fit.
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
