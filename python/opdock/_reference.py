# SPDX-License-Identifier: Apache-2.0
"""The plugins' references: plain PyTorch implementations that tests compare kernels with."""

import importlib.util

from opdock import _names
from opdock._errors import NotFoundError
from opdock._fallback import packaged


def reference(name):
    """The reference of an op: a Python function with the op's parameters.

    Plugins keep it in `reference.py` beside their sources, as a function named like the op. Those
    of the package count, and where it lies in the tree that it was built in, those of that tree;
    what others can write is not run. Raises NotFoundError with the places looked at.
    """
    _names.text("reference", "name", name, "a str such as 'softmax'")
    looked_at = []
    for path, why in packaged().items():
        looked_at.append(str(path) if why is None else f"{path} (not run: {why})")
        if why is not None:
            continue
        spec = importlib.util.spec_from_file_location(
            f"opdock._references.{path.parent.name}", path
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found = getattr(module, name, None)
        if callable(found):
            return found
    raise NotFoundError(
        f"found no reference for {name!r}, wanted a function of that name in a plugin's "
        f"reference.py; looked at: {', '.join(looked_at) or 'no file'}"
    )
