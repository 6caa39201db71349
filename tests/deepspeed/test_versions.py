# SPDX-License-Identifier: Apache-2.0
"""Tests which CUDA is installed, and which versions go with torch's."""

import pytest
import torch

import opdock


def test_nvcc_says_its_version(compat, toolkit):
    toolkit("12.4")
    assert compat.installed_cuda_version() == (12, 4)


def test_no_nvcc_is_an_error_of_its_own(compat, monkeypatch, tmp_path):
    """DeepSpeed#5497: importing failed without nvcc. Here importing needs no nvcc; a build does."""
    from opdock.compat.deepspeed import _versions

    monkeypatch.setattr(_versions, "_tools", lambda _: {})
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(compat.MissingCUDAException) as caught:
        compat.installed_cuda_version("my_op")
    for part in ("my_op", "found no nvcc", str(tmp_path), "CUDA_HOME", "install"):
        assert part in str(caught.value)
    assert isinstance(caught.value, opdock.OpdockError)


@pytest.mark.parametrize(
    ("nvcc", "built_for"),
    [("12.1", "12.1"), ("12.1", "12.8"), ("12.9", "12.0"), ("13.0", "13.2"), ("14.0", "14.1")],
)
def test_minor_versions_go_together(compat, toolkit, monkeypatch, said, nvcc, built_for):
    """DeepSpeed has no table for 13 and refuses it."""
    toolkit(nvcc)
    monkeypatch.setattr(torch.version, "cuda", built_for)
    assert compat.assert_no_cuda_mismatch("my_op") is True
    compat.assert_no_cuda_mismatch("my_op")
    assert len(said) == (nvcc != built_for)  # printed only once


def test_the_table_of_versions_is_the_rule(compat):
    """DeepSpeed's own lists 10 to 12, without 12.7."""
    table = compat.cuda_minor_mismatch_ok
    assert set(table) == {10, 11, 12, 13} and 12 in table and 15 in table and 9 not in table
    for major, version in ((11, "11.8"), (12, "12.7"), (12, "12.12"), (13, "13.2"), (15, "15.0")):
        assert version in table[major] and version not in table[major - 1]
    assert "12" not in table[12] and "12.1.3" not in table[12]
    assert list(table[12])[:2] == ["12.0", "12.1"] and dict(table)[10][-1] == "10.9"
    with pytest.raises(KeyError):
        table["12"]


def test_another_major_version_is_refused_by_name(compat, toolkit, monkeypatch):
    toolkit("12.1")
    monkeypatch.setattr(torch.version, "cuda", "11.8")
    with pytest.raises(compat.CUDAMismatchException) as caught:
        compat.assert_no_cuda_mismatch("my_op")
    for part in ("my_op", "nvcc 12.1", "11.8", "wanted 11.x", "DS_SKIP_CUDA_CHECK=1"):
        assert part in str(caught.value)
    assert isinstance(caught.value, RuntimeError)


def test_the_check_can_be_skipped(compat, toolkit, monkeypatch, said):
    """DeepSpeed#3223: CUDA 12.1 with a torch for 11.8 was refused although it would work."""
    toolkit("12.1")
    monkeypatch.setattr(torch.version, "cuda", "11.8")
    monkeypatch.setenv("DS_SKIP_CUDA_CHECK", "1")
    assert compat.assert_no_cuda_mismatch() is True
    assert any("DS_SKIP_CUDA_CHECK" in line for line in said)


def test_a_torch_without_cuda_is_named(compat, toolkit, monkeypatch):
    toolkit("13.0")
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(compat.MissingCUDAException, match="torch without CUDA"):
        compat.assert_no_cuda_mismatch("my_op")


def test_rocm_by_its_files(compat, monkeypatch, tmp_path):
    (tmp_path / ".info").mkdir()
    (tmp_path / ".info" / "version").write_text("6.2.1-66\n")
    monkeypatch.setenv("ROCM_HOME", str(tmp_path))
    assert compat.OpBuilder.installed_rocm_version() == (6, 2)
