# SPDX-License-Identifier: Apache-2.0
"""Tests that OPDOCK_DEEPSPEED=1 counts in every process of a program whose package opdock lies on
PYTHONPATH only: subprocesses, multiprocessing, torchrun and DeepSpeed's launcher."""

from pathlib import Path

import pytest
import small_deepspeed
from conftest import needs_deepspeed, run_python

import opdock

BUILT = Path(opdock.__file__).resolve().parents[1]
# Prints whether Opdock's methods are in the place of DeepSpeed's.
SAYS = """
import sys
from deepspeed.ops.op_builder import FusedAdamBuilder
print("served", hasattr(FusedAdamBuilder.load, "_opdock_original"), "torch" in sys.modules)
"""


@pytest.fixture
def start(tmp_path):
    """Returns a function that runs code with a small DeepSpeed and, on PYTHONPATH, a folder of
    which Python reads nothing at startup, with the package and without plugins."""
    if (BUILT / "opdock_deepspeed.pth").is_file():
        pytest.skip(f"the package is installed, in {BUILT}, and does not lie on PYTHONPATH only")
    small_deepspeed.write(tmp_path)
    (tmp_path / "opdock").symlink_to(BUILT / "opdock")
    (tmp_path / "says.py").write_text(SAYS)

    def run(code, path=tmp_path, **named):
        named = {"prelude": None, "PYTHONPATH": str(path), "OPDOCK_DEEPSPEED": "1", **named}
        return run_python(code, tmp_path / "says.py", **named)

    run.folder = tmp_path
    return run


def test_a_program_that_never_imports_opdock(start):
    """With the build tree on PYTHONPATH, and with the folder that the page names."""
    for path in (BUILT, BUILT / "opdock" / "compat" / "deepspeed" / "start"):
        done = start(SAYS, f"{path}:{start.folder}")
        assert done.stdout == "served True False\n" and done.stderr == "", done.stderr
        assert (
            start(SAYS, f"{path}:{start.folder}", OPDOCK_DEEPSPEED="0").stdout.split()[1] == "False"
        )
    assert start(SAYS).stdout.split()[1] == "False"


STARTS = {
    "subprocess": "subprocess.run([sys.executable, sys.argv[1]], check=True)",
    "shell": "os.system(f'{sys.executable} {sys.argv[1]}')",
    "spawn": """
import multiprocessing, runpy
worker = multiprocessing.get_context("spawn").Process(target=runpy.run_path, args=(sys.argv[1],))
worker.start()
worker.join()
""",
    "its child": """
text = "import subprocess, sys; subprocess.run([sys.executable, sys.argv[1]], check=True)"
subprocess.run([sys.executable, "-c", text, sys.argv[1]], check=True)
""",
}


@pytest.mark.parametrize("way", STARTS)
def test_what_a_program_starts_is_served_as_well(start, way):
    done = start("import os, subprocess, sys\nimport opdock\n" + STARTS[way])
    assert done.stdout.split()[:2] == ["served", "True"] and done.stderr == "", done.stderr


def test_torchrun(start):
    code = """
import os, sys
import opdock
from torch.distributed.run import main
main(["--nproc-per-node", "2", "--master-port", "0", "--no-python", sys.executable, sys.argv[1]])
"""
    done = start(code, prelude="import torch")
    assert done.stdout.count("served True") == 2, done.stdout + done.stderr


@needs_deepspeed
def test_deepspeeds_launcher(start):
    code = """
import base64, os, sys
import opdock
from deepspeed.launcher.launch import main
world = base64.urlsafe_b64encode(b'{"localhost": [0, 1]}').decode()
sys.argv[1:] = [f"--world_info={world}", "--master_addr=127.0.0.1", "--master_port=29500",
                sys.argv[1]]
main()
"""
    (start.folder / "says.py").write_text(SAYS)
    done = start(
        code,
        prelude="import torch, deepspeed",
        DS_ACCELERATOR="cpu",
        start=(("DS_ACCELERATOR", "cpu"), ("DS_SKIP_CUDA_CHECK", "1")),
    )
    assert done.stdout.count("served True") == 2, done.stdout + done.stderr


def test_the_sitecustomize_behind_it_is_executed(start):
    """And that of another Python, where the package cannot be imported, says so."""
    other = start.folder / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("print('other', __name__)\n")
    first = BUILT / "opdock" / "compat" / "deepspeed" / "start"
    # The folder of the build tree has a copy of the same file: each goes on to the next.
    done = start("print('program')", f"{first}:{BUILT}:{other}", OPDOCK_DEEPSPEED="0")
    assert done.stdout == "other sitecustomize\nprogram\n" and done.stderr == ""
    done = start("print('program')", str(first))
    assert done.stdout == "program\n"
    assert (
        done.stderr.count("OPDOCK_DEEPSPEED=1 has no effect in this process: found no opdock") == 1
    )


def test_a_package_that_children_would_not_find(start):
    code = f"import sys; sys.path.insert(0, {str(start.folder)!r}); import opdock"
    done = start(code, start.folder / "none")
    assert done.stderr.count("in no process that they start: found opdock in") == 1, done.stderr
