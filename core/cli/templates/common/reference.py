"""opname in PyTorch: the tests compare with it, and it is used if the plugin cannot be."""


def opname(x, *, a=1.0):
    """a * x, elementwise."""
    return a * x
