# SPDX-License-Identifier: Apache-2.0
"""Compares random formulas with torch: a few of fixed seeds, and with --nightly many.

OPDOCK_TEST_DEVICES names another device than the CPU, such as "cuda" with a software GPU."""

import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import random_formulas  # noqa: E402  (it needs torch)

DEVICE = os.environ.get("OPDOCK_TEST_DEVICES", "cpu")
NIGHTLY = bool(os.environ.get("OPDOCK_TEST_NIGHTLY"))
# How many, as (each time, with --nightly). Those for a GPU have to be compiled first.
COUNTS = {"cpu": {False: (300, 20_000), True: (60, 2_000)}}
GPU_COUNTS = {False: (0, 1_000), True: (0, 100)}


@pytest.mark.parametrize("gradients", [False, True], ids=["values", "gradients"])
def test_random_formulas_compute_what_torch_computes(gradients):
    count = COUNTS.get(DEVICE, GPU_COUNTS)[gradients][NIGHTLY]
    if count == 0:
        pytest.skip("runs with --nightly on GPUs")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    wrong = []
    try:
        found = random_formulas.run(range(count), DEVICE, gradients, show=wrong.append)
    finally:
        torch.set_num_threads(threads)
    assert not wrong, "\n".join(wrong)
    # If little were judged, little would be tested.
    assert found.formulas > count * 0.9 and found.judged > 9 * found.open
