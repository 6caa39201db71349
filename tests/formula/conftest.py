# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of formulas. on_device.py runs them on one device, which
OPDOCK_TEST_DEVICES names: "cpu", or a software GPU as "cuda" or "rocm"."""

import os

import pytest
import torch

import opdock
from opdock.testing import on

DEVICE = os.environ.get("OPDOCK_TEST_DEVICES", "cpu")
NIGHTLY = bool(os.environ.get("OPDOCK_TEST_NIGHTLY"))
torch.set_num_threads(1)


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: about kernels for GPUs")
    config.addinivalue_line("markers", "daily(*devices): on other devices only with --nightly")


def pytest_collection_modifyitems(items):
    """A kernel takes longer to compile than to run, so that each device has its share."""
    for item in items:
        if item.get_closest_marker("gpu") and DEVICE == "cpu":
            item.add_marker(pytest.mark.skip(reason="is about kernels for GPUs"))
        daily = item.get_closest_marker("daily")
        if daily and DEVICE not in daily.args and not NIGHTLY:
            item.add_marker(pytest.mark.skip(reason=f"runs on {DEVICE} with --nightly"))


@pytest.fixture(scope="session", autouse=True)
def compiler():
    """Skips everything where the GPU's compiler is not installed."""
    if DEVICE == "cpu":
        return
    arch = {"cuda": "sm_90", "rocm": "gfx90a"}[DEVICE]
    try:
        opdock.compile('extern "C" __global__ void f() {}', kernels=["f"], arch=arch)
    except opdock.IncompatibleError as error:
        if any(reason["code"] == "jit-no-compiler" for reason in error.reasons):
            pytest.skip("neither NVRTC nor hipRTC is installed for this device")
        raise


@pytest.fixture
def device():
    return DEVICE


@pytest.fixture
def compute():
    """Returns compute(text, *arguments, schema=None, **keywords), which calls a formula on the
    device with torch tensors of the CPU."""

    def call(text, *arguments, schema=None, **keywords):
        return on(DEVICE, opdock.formula(text, schema))(*arguments, **keywords)

    return call
