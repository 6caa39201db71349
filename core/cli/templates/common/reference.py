"""opname in PyTorch: what the tests compare with, and what is used where the plugin cannot be."""


def opname(x, *, a=1.0):
    """a * x, elementwise."""
    return a * x
