# SPDX-License-Identifier: Apache-2.0
"""Does at Python's startup what opdock_deepspeed.pth does: with OPDOCK_DEEPSPEED=1, imports opdock,
so that an unmodified DeepSpeed uses it.

Python reads no .pth file of a folder on PYTHONPATH, but executes the first sitecustomize.py there.
So this file is for packages that lie on PYTHONPATH only. It executes the next sitecustomize.py too,
which it hides. It must run in any Python, since a variable chooses no version.
"""

import os
import sys


def _execute_next():
    """Executes the sitecustomize.py that Python would have found without this one."""
    from importlib import machinery, util

    own = os.path.dirname(os.path.abspath(__file__))
    folders = [os.path.abspath(folder) for folder in sys.path]
    if own not in folders:
        return
    # Only later folders: another copy of this file goes on from its own.
    later = sys.path[folders.index(own) + 1 :]
    spec = machinery.PathFinder.find_spec("sitecustomize", later)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(util.module_from_spec(spec))


def _import_opdock():
    if os.environ.get("OPDOCK_DEEPSPEED", "0") in ("", "0"):
        return
    try:
        __import__("opdock")
    except ImportError as error:
        value, version = os.environ["OPDOCK_DEEPSPEED"], "{}.{}".format(*sys.version_info)
        sys.stderr.write(
            f"opdock: OPDOCK_DEEPSPEED={value} has no effect in this process: found no opdock that "
            f"can be imported ({error}), wanted its folder on PYTHONPATH, for Python {version}\n"
        )


_execute_next()
_import_opdock()
