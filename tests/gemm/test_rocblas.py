# SPDX-License-Identifier: Apache-2.0
"""Tests Opdock's calls of rocBLAS, and what it does without the library.

A stand-in computes on the software GPU's memory."""

import pytest
import test_soft
from test_cublaslt import BUILD, EMPTY, WARNING

FAKE = BUILD / "librocblas-fake.so"


@pytest.fixture
def run(tmp_path):
    """Returns run(choice of tests, library=…, fake=…): (pytest's output, lines that the stand-in
    wrote, Opdock's kernels that were launched)."""

    def run(*choice, library=FAKE, fake="", status=0):
        record = tmp_path / "asked"
        done, found, launched = test_soft.run_tests(
            tmp_path, "gfx90a", choice, FAKE_ROCBLAS=fake, FAKE_ROCBLAS_RECORD=str(record),
            OPDOCK_GEMM=str(library),
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        assert found == ""
        lines = record.read_text().splitlines() if record.exists() else []
        return done.stdout + done.stderr, lines, launched

    return run


def test_all_products(run):
    _, lines, launched = run()
    assert lines.count("create") == 1
    asked = {tuple(line.split()[1:4:2]) for line in lines if line.startswith("gemm")}
    floats = {("150", "150"), ("150", "151"), ("151", "151"), ("168", "168"), ("168", "151")}
    assert asked == floats | {("160", "162")}
    assert any("finish_sums" in name for name in launched)  # for each bias and activation
    assert sum("finish_vectors" in name for name in launched) == 2  # one for each 16-bit dtype
    assert any("multiply_floats" in name for name in launched)  # for eight-bit floats


def test_deterministic(run):
    _, lines, _ = run("-k", "same_bits")
    gemms = [line for line in lines if line.startswith("gemm")]
    assert [line.split()[-1] for line in gemms] == ["1", "1", "0", "0"]


@pytest.mark.parametrize(
    "library, fake, code, words",
    [
        (EMPTY, "", "gemm-library-unfit", "a librocblas without rocblas_create_handle"),
        (BUILD / "nothing.so", "", "gemm-library-unfit", "nothing.so"),
        (FAKE, "2", "gemm-declined", "rocblas_status_not_implemented (2)"),
    ],
)
def test_plain_kernels_serve_and_it_is_said_once(run, library, fake, code, words):
    text, _, launched = run("-s", "-k", "shapes and dtype1", library=library, fake=fake)
    assert text.count(WARNING) == 1
    assert words in text.split(WARNING + code + ": ")[1].splitlines()[0]
    assert any("multiply_floats" in name for name in launched)


def test_a_status_that_is_no_refusal_is_the_calls_error(run):
    text, _, launched = run("-k", "shapes and dtype1", fake="77", status=1)
    assert "rocblas_gemm_strided_batched_ex: an unknown status (77)" in text
    assert not any("multiply" in name for name in launched)
