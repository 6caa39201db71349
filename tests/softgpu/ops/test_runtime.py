# SPDX-License-Identifier: Apache-2.0
"""Tests that a program linked with the CUDA runtime cannot run on a software GPU: it reports this,
and the process lives on."""

import pytest
from conftest import BUILD


def test_a_plugin_of_nvccs(soft):
    if not (BUILD / "plugins" / "bias_gelu.so").exists():
        pytest.skip("the build found no nvcc")
    done = soft("""
        bias_gelu = opdock.load("bias_gelu/bias_gelu")
        show(error=error(on("cuda", bias_gelu), torch.ones(2, 3), torch.ones(3)))
    """)
    assert done.shown["error"].startswith("DeviceError"), done.shown
    assert "operation not supported" in done.shown["error"]
    assert done.events("launch") == []
