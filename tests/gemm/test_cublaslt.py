# SPDX-License-Identifier: Apache-2.0
"""Tests Opdock's calls of cuBLASLt, and what it does without the library.

A stand-in computes on the software GPU's memory, checks descriptors, and fails when it is told to.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import test_soft

BUILD = test_soft.BUILD / "tests" / "gemm"
FAKE, EMPTY = BUILD / "libcublasLt-fake.so", BUILD / "libcublasLt-empty.so"


@pytest.fixture
def run(tmp_path):
    """Returns run(choice of tests, library=…, fake=…): (pytest's output, lines that the stand-in
    wrote, Opdock's kernels that were launched)."""

    def run(*choice, library=FAKE, fake="", status=0, **variables):
        record = tmp_path / "asked"
        record.unlink(missing_ok=True)
        if library is not None:
            variables["OPDOCK_GEMM"] = str(library)
        done, found, launched = test_soft.run_tests(
            tmp_path, "sm_90", choice, FAKE_CUBLASLT=fake, FAKE_CUBLASLT_RECORD=str(record),
            **variables,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        assert found == ""
        lines = record.read_text().splitlines() if record.exists() else []
        return done.stdout + done.stderr, lines, launched

    return run


def test_all_products(run):
    _, lines, launched = run("-k", "not eight_bit")
    assert lines.count("create") == 1  # from one thread on one device
    # The library lacks some products of eight-bit floats: only all dtypes with all shapes have each
    # dtype in one that it computes.
    _, more, _ = run("-k", "eight_bit", OPDOCK_TEST_NIGHTLY="1")
    matmuls = [line for line in [*lines, *more] if line.startswith("matmul")]
    # Sums of float32 and of integers; plain and GELU, each with a bias and without.
    assert {line.split()[2] for line in matmuls} == {"68", "72"}
    assert {line.split()[4] for line in matmuls} == {"1", "4", "32", "36"}
    # 32-bit floats and integers, half, bfloat16, eight-bit floats.
    assert {line.split()[6] for line in matmuls} == {"0", "10", "2", "14", "28", "29"}
    assert any("finish_sums" in name for name in launched)
    assert sum("finish_vectors" in name for name in launched) == 2  # one for each 16-bit dtype


def test_what_the_library_does_not_do_a_plain_kernel_does(run):
    text, lines, launched = run("-k", "eight_bit or int8 or strides")
    assert any("multiply_floats" in name for name in launched)
    assert any("multiply_integers" in name for name in launched)


def test_algorithms_are_kept(run):
    _, lines, _ = run("-k", "same_bits")
    assert [line.split()[0] for line in lines].count("matmul") == 4
    heuristics = [line for line in lines if line.startswith("heuristic")]
    # TF32 and deterministic: the sums are in float32.
    assert heuristics == ["heuristic schemes 2"] * 2


def test_workspace(run):
    _, lines, _ = run("-k", "same_bits", fake="workspace=5000")
    assert {line.split()[-1] for line in lines if line.startswith("matmul")} == {"5000"}


def test_less_workspace_than_plan_asked_for(run):
    text, lines, _ = run("-s", "-k", "less_workspace", fake="workspace=5000")
    assert text.count("refused") == 1  # for int8, whose sums are in the workspace
    assert [line.split()[-1] for line in lines if line.startswith("matmul")] == ["0"]


def test_float32_is_rounded_to_tf32_where_it_may_be(tmp_path):
    """Either the plugin's flag or the caller's option allows it; torch's setting is only for
    torch's tensors."""
    program = """
multiply()
opdock.ops.test_gemm(*there, flags=1)
opdock.configure(tf32=True)
multiply()
check()
half = [to_gpu(x.half(), gpu) for x in (a, b, d)]
gpu.synchronize()
for array in half:
    array.__class__ = cupy.ndarray
opdock.ops.test_gemm(*half)
opdock.configure()
torch.backends.cuda.matmul.allow_tf32 = True
multiply()
check()
"""
    matmuls = [line for line in run_program(tmp_path, program) if line.startswith("matmul")]
    assert [line.split()[2] for line in matmuls] == ["68", "77", "77", "68", "68"]


WARNING = "products of matrices are computed by plain kernels, which are slow: "


@pytest.mark.parametrize(
    "library, fake, code, words",
    [
        (BUILD / "nothing.so", "", "gemm-library-unfit", "nothing.so"),
        (EMPTY, "", "gemm-library-unfit", "a libcublasLt without cublasLtGetVersion"),
        (FAKE, "create=1", "gemm-library-unfit", "CUBLAS_STATUS_NOT_INITIALIZED (1)"),
        (FAKE, "heuristic=15", "gemm-declined", "CUBLAS_STATUS_NOT_SUPPORTED (15)"),
        (FAKE, "greedy=99999999", "gemm-declined", "CUBLAS_STATUS_NOT_SUPPORTED (15)"),
        (FAKE, "matmul=15", "gemm-declined", "CUBLAS_STATUS_NOT_SUPPORTED (15)"),
    ],
)
def test_plain_kernels_serve_and_it_is_said_once(run, library, fake, code, words):
    text, _, launched = run("-s", "-k", "shapes and dtype1", library=library, fake=fake)
    assert text.count(WARNING) == 1
    assert words in text.split(WARNING + code + ": ")[1].splitlines()[0]
    assert any("multiply_floats" in name for name in launched)


def test_no_library(run, tmp_path):
    variables = {name: str(tmp_path) for name in ("HOME", "VIRTUAL_ENV", "CUDA_HOME")}
    text, _, _ = run("-s", "-k", "shapes and dtype1", library=None, **variables)
    if WARNING not in text:
        pytest.skip("a cuBLASLt is installed here")
    assert text.count(WARNING + "gemm-library-") == 1


def test_a_status_that_is_no_refusal_is_the_calls_error(run):
    text, _, launched = run("-k", "shapes and dtype1", fake="matmul=13", status=1)
    assert "cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED (13)" in text
    assert not any("multiply" in name for name in launched)


def run_program(tmp_path, program):
    """Runs a program; returns the lines that the stand-in wrote."""
    record = tmp_path / "asked"
    done, found, _ = test_soft.run_on(
        tmp_path, "sm_90", test_soft.SIDE + program, OPDOCK_GEMM=str(FAKE),
        FAKE_CUBLASLT_RECORD=str(record),
    )  # fmt: skip
    assert done.returncode == 0 and found == "", done.stderr + found
    return record.read_text().splitlines()


def test_a_product_is_captured(tmp_path):
    """While capturing, the stand-in only records the call. Opdock makes no other call to it or to
    the driver."""
    lines = run_program(tmp_path, "multiply()\ncheck()\ngraph = gpu.capture(stream, multiply)\n")
    assert lines[-1].endswith("captured") and lines[-2].startswith("matmul")
    assert len(lines) == 4  # create, heuristic, two products


def test_each_thread_has_a_handle_and_leaves_it_to_the_next(tmp_path):
    program = """
def run(function):
    thread = threading.Thread(target=function)
    thread.start()
    return thread
for _ in range(3):
    run(multiply).join()
    check()
both = threading.Barrier(2)
def beside():
    both.wait()
    multiply()
    both.wait()
for thread in [run(beside), run(beside)]:
    thread.join()
check()
"""
    lines = run_program(tmp_path, program)
    assert lines.count("create") == 2
    assert sum(line.startswith("matmul") for line in lines) == 5
    assert sum(line.startswith("heuristic") for line in lines) == 2


def test_the_declarations_are_nvidias(tmp_path):
    """Compares core/gemm/cublaslt_api.h with cublasLt.h, where NVIDIA's wheel or a toolkit has
    it."""
    folders = [Path(p) / "nvidia" for p in sys.path] + [Path("/usr/local/cuda")]
    if "CUDA_HOME" in os.environ:
        folders.append(Path(os.environ["CUDA_HOME"]))
    found = [h for f in folders if f.is_dir() for h in f.glob("**/cublasLt.h")]
    compiler = shutil.which("g++") or shutil.which("clang++")
    if not found or compiler is None:
        pytest.skip("no cublasLt.h (pip install nvidia-cublas), or no C++ compiler")
    root = Path(__file__).resolve().parents[2]
    # Its includes may be in another folder, but folders of two CUDA releases must not be mixed.
    includes = [found[0].parent]
    if not (found[0].parent / "driver_types.h").exists():
        others = (h for f in folders if f.is_dir() for h in f.glob("**/driver_types.h"))
        includes += [h.parent for h in others][:1]
    words = [compiler, "-std=c++20", "-fsyntax-only", f"-I{root / 'core'}"]
    words += [*(f"-I{i}" for i in includes), Path(__file__).with_name("cublaslt_check.cc")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_each_declared_number_is_compared():
    root = Path(__file__).resolve().parents[2]
    header = (root / "core" / "gemm" / "cublaslt_api.h").read_text()
    check = Path(__file__).with_name("cublaslt_check.cc").read_text()
    for name in re.findall(r"\b(CU[A-Z]\w+) = ", header) + re.findall(r"\(\*(\w+)\)", header):
        assert re.search(rf"\({name}\);", check), name
