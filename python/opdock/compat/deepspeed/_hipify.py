# SPDX-License-Identifier: Apache-2.0
"""Translates copies of CUDA sources for ROCm, by hipify-perl or by torch's hipify."""

import contextlib
import io
import os
import shutil
import subprocess

from opdock._errors import NotFoundError

_KINDS = (".cu", ".cuh", ".h", ".hpp", ".c", ".cc", ".cpp", ".cxx")


def _by_perl(program, folder, names):
    """Replaces each file by its translation, and a .cu file by a .hip file. Returns {name: new
    name}."""
    made = {}
    for name in names:
        path = os.path.join(folder, name)
        done = subprocess.run(
            [program, path], capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode != 0:
            raise NotFoundError(
                f"{program} could not translate {name}: {done.stderr.strip()[:500]}; correct the "
                "source, or give a .hip file in sources()"
            )
        made[name] = f"{name[:-3]}.hip" if name.endswith(".cu") else name
        with open(os.path.join(folder, made[name]), "w", encoding="utf-8") as file:
            file.write(done.stdout)
    return made


def _by_torch(folder, names, includes):
    """Translates by torch, which writes new files next to the originals, under its own names.
    Returns {name: new name}."""
    from torch.utils.hipify import hipify_python

    folder = os.path.realpath(folder)
    silent = io.StringIO()  # discards its progress messages
    with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        done = hipify_python.hipify(
            project_directory=folder,
            output_directory=folder,
            header_include_dirs=includes,
            includes=[os.path.join(folder, "*")],
            extra_files=[os.path.join(folder, name) for name in names],
            show_progress=False,
            is_pytorch_extension=True,
            hipify_extra_files_only=True,
        )
    made = {}
    for name in names:
        found = done.get(os.path.join(folder, name))
        path = getattr(found, "hipified_path", None)
        made[name] = os.path.relpath(path, folder) if path else name
        # the file has no CUDA, so torch left it as it is
        if name.endswith(".cu") and made[name] == name:
            made[name] = f"{name[:-3]}.hip"
            shutil.copyfile(os.path.join(folder, name), os.path.join(folder, made[name]))
    return made


def translate(folder, names, includes):
    """Translates copies of sources in `folder`; returns {name: the translation's name} for all
    `names`.

    names, includes: relative to `folder`. A .cu file becomes a .hip file, for hipcc. Raises
    NotFoundError if neither tool is installed, or if hipify-perl cannot translate a file.
    """
    wanted = [name for name in names if name.endswith(_KINDS)]
    perl = shutil.which("hipify-perl")
    if perl is not None:
        made = _by_perl(perl, folder, wanted)
    else:
        try:
            made = _by_torch(folder, wanted, includes)
        except ImportError as error:
            raise NotFoundError(
                f"found neither hipify-perl nor torch's hipify ({error}), wanted one to translate "
                "CUDA sources for ROCm; install the package hipify of ROCm, or give .hip files"
            ) from error
    return {name: made.get(name, name) for name in names}
