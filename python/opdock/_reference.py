# SPDX-License-Identifier: Apache-2.0
"""Finds the plugins' references: plain PyTorch implementations that tests compare kernels with."""

import importlib.util

from opdock import _names
from opdock._errors import NotFoundError
from opdock._fallback import packaged


def reference(name):
    """Returns the reference of the op `name`: a Python function with the op's parameters.

    A plugin keeps its references in `reference.py` next to its sources, as functions named like its
    ops. The files that came with the package are searched, and, for a package in a build tree,
    those of that tree; files that other users can write are not run. Raises NotFoundError, which
    lists the files searched.
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
