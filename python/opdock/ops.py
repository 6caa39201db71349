# SPDX-License-Identifier: Apache-2.0
"""Has every op as an attribute, which is looked up on first use and then kept.

opdock.ops.softmax(x)
from opdock.ops import softmax
"""

# Names here begin with "__", as those of no op do.
from opdock import _load as __load
from opdock import _runtime as __runtime
from opdock._errors import NotFoundError as __NotFoundError


def __getattr__(name):
    if name == "__all__":
        return __dir__()
    if name.startswith("__") or not name.isidentifier():
        raise AttributeError(name)
    try:
        return __runtime.function(name)
    except __NotFoundError as error:
        # AttributeError makes hasattr() and getattr() with a default work as usual.
        raise AttributeError(str(error), name=name) from error


def __dir__():
    return __load.op_names()


__runtime.keep_functions_in(globals())
