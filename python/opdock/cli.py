# SPDX-License-Identifier: Apache-2.0
"""The console script `opdock`: replaces itself by the command built with the package."""

import os
import sys
from pathlib import Path


def command():
    """Returns the path of the built command, in the installed package or the build tree, or
    None."""
    here = Path(__file__).resolve().parent
    for path in (here / "bin" / "opdock", here.parents[1] / "core" / "cli" / "opdock"):
        if path.is_file():
            return path
    return None


def main():
    """Executes the command with this process's arguments; returns only by sys.exit, without it."""
    path = command()
    if path is None:
        sys.exit(
            "opdock: found no command beside the package, wanted opdock/bin/opdock; reinstall it"
        )
    # Only Python can read entry points, so pass the folders of announced plugins to the command.
    from opdock._runtime import package_folders

    os.environ.setdefault("OPDOCK_PACKAGE_PATH", ":".join(package_folders()))
    os.environ.setdefault("OPDOCK_PYTHON", sys.executable)  # for `opdock test` and `opdock bench`
    os.execv(path, [str(path), *sys.argv[1:]])


if __name__ == "__main__":
    main()
