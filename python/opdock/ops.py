# SPDX-License-Identifier: Apache-2.0
"""Has every op as an attribute, which is looked up on first use and then kept.

opdock.ops.softmax(x)
from opdock.ops import softmax
"""


def __getattr__(name):
    from opdock._errors import NotFoundError
    from opdock._runtime import function

    if name == "__all__":
        return __dir__()
    if name.startswith("__") or not name.isidentifier():
        raise AttributeError(name)
    try:
        return function(name)
    except NotFoundError as error:
        # AttributeError makes hasattr() and getattr() with a default work as usual.
        raise AttributeError(str(error), name=name) from error


def __dir__():
    from opdock._load import op_names

    return op_names()
