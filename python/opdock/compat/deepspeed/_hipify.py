# SPDX-License-Identifier: Apache-2.0
"""CUDA sources for ROCm: translated by hipify-perl or by torch's hipify, in the build's folder."""

import os
import shutil
import subprocess

from opdock._errors import NotFoundError

_KINDS = (".cu", ".cuh", ".h", ".hpp", ".cc", ".cpp", ".cxx")


def _by_perl(program, paths):
    for path in paths:
        done = subprocess.run(
            [program, path], capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode != 0:
            raise NotFoundError(
                f"{program} could not translate {path}: {done.stderr.strip()[:500]}; correct the "
                "source, or give a .hip file in sources()"
            )
        with open(path, "w", encoding="utf-8") as file:
            file.write(done.stdout)


def _by_torch(folder, paths):
    from torch.utils.hipify import hipify_python

    for path in paths:
        # The text alone: its own walk over files writes beside them under names of its own.
        result = hipify_python.preprocessor(
            folder,
            path,
            {path: hipify_python.HipifyResult(current_state=None, hipified_path="")},
            [],
            hipify_python.PreprocessedFileHandling()
            if hasattr(hipify_python, "PreprocessedFileHandling")
            else {},
        )
        if result.hipified_path and result.hipified_path != path:
            os.replace(result.hipified_path, path)


def translate(folder, names):
    """Translates copies of sources, relative to `folder`, in place; the .hip files among them.

    Of a .cu file there is a .hip file afterwards, which hipcc compiles. Raises NotFoundError where
    neither tool is installed, or one does not take a file.
    """
    paths = [os.path.join(folder, name) for name in names if name.endswith(_KINDS)]
    perl = shutil.which("hipify-perl")
    if perl is not None:
        _by_perl(perl, paths)
    else:
        try:
            _by_torch(folder, paths)
        except ImportError as error:
            raise NotFoundError(
                f"found neither hipify-perl nor torch's hipify ({error}), wanted one to translate "
                "CUDA sources for ROCm; install the package hipify of ROCm, or give .hip files"
            ) from error
    hip = [name for name in names if name.endswith(".hip")]
    for name in names:
        if name.endswith(".cu"):
            made = name[: -len(".cu")] + ".hip"
            shutil.copyfile(os.path.join(folder, name), os.path.join(folder, made))
            hip.append(made)
    return hip
