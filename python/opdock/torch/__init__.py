# SPDX-License-Identifier: Apache-2.0
"""Makes each op a PyTorch operator: torch.ops.opdock.NAME.

    import opdock.torch
    y = torch.ops.opdock.softmax(x, scale=0.125)

The import registers the ops of all plugins that are usable or can be built here. It reads what the
plugins declare; a plugin is loaded by the first call of one of its ops. register() adds ops that
are found or made later. torch.compile(model, backend="opdock") makes kernels of what a model
computes elementwise and along rows. docs/guide/pytorch.md shows the uses, docs/reference/pytorch.md
lists what autograd, torch.func, torch.compile and autocast do with each kind of op.
"""

import torch

from opdock.torch import _version

_version.check(str(torch.__version__))

from opdock.torch import backend  # noqa: E402
from opdock.torch._register import refused, register, register_all  # noqa: E402
from opdock.torch.backend import explain, inductor_pass  # noqa: E402

register_all()
backend.register()

from opdock.torch import nn, optim  # noqa: E402  (they use the operators)
from opdock.torch._patch import Report, patch, unpatch  # noqa: E402

__all__ = [
    "Report", "explain", "inductor_pass", "nn", "optim", "patch", "refused", "register",
    "register_all", "unpatch",
]  # fmt: skip
