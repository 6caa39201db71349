# SPDX-License-Identifier: Apache-2.0
"""The console script `opdock`: becomes the command that was built with the package."""

import os
import sys
from pathlib import Path


def command():
    """The path of the built command: inside an installed package, or in the build tree."""
    here = Path(__file__).resolve().parent
    for path in (here / "bin" / "opdock", here.parents[1] / "core" / "cli" / "opdock"):
        if path.is_file():
            return path
    return None


def main():
    """Runs the command with this process's arguments; does not return if it is there."""
    path = command()
    if path is None:
        sys.exit(
            "opdock: found no command beside the package, wanted opdock/bin/opdock; reinstall it"
        )
    # Packages that announce plugins do so to Python only: the command gets their folders.
    from opdock._runtime import package_folders

    os.environ.setdefault("OPDOCK_PACKAGE_PATH", ":".join(package_folders()))
    os.environ.setdefault("OPDOCK_PYTHON", sys.executable)  # for `opdock test` and `opdock bench`
    os.execv(path, [str(path), *sys.argv[1:]])


if __name__ == "__main__":
    main()
