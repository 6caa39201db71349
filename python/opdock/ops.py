# SPDX-License-Identifier: Apache-2.0
"""Every op as an attribute, looked up on first use and kept.

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
        # hasattr() and getattr() with a default work as with any other attribute.
        raise AttributeError(str(error), name=name) from error


def __dir__():
    from opdock._load import op_names

    return op_names()
