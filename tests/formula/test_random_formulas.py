# SPDX-License-Identifier: Apache-2.0
"""Compares random formulas with torch: a few of fixed seeds, and with --nightly many. Tests also
that the comparison calls faults wrong, and nothing else.

OPDOCK_TEST_DEVICES names another device than the CPU, such as "cuda" with a software GPU."""

import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import other_kernels  # noqa: E402  (both need torch)
import random_formulas  # noqa: E402

DEVICE = os.environ.get("OPDOCK_TEST_DEVICES", "cpu")
NIGHTLY = bool(os.environ.get("OPDOCK_TEST_NIGHTLY"))
# How many, as (each time, with --nightly). Those for a GPU have to be compiled first.
COUNTS = {"cpu": {False: (300, 20_000), True: (60, 2_000)}}
# torch records no gradients of calls that are brought to a GPU and back.
GPU_COUNTS = {False: (0, 1_000), True: (0, 0)}


@pytest.mark.parametrize("gradients", [False, True], ids=["values", "gradients"])
def test_random_formulas_compute_what_torch_computes(gradients):
    count = COUNTS.get(DEVICE, GPU_COUNTS)[gradients][NIGHTLY]
    if count == 0:
        pytest.skip("gradients: on the CPU" if gradients else "runs with --nightly on GPUs")
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


# Formulas that are 0, infinite or another element's number where gelu has cancelled.
CANCELLED = [1080, 1759, 2712, 2841]


@pytest.mark.skipif(DEVICE != "cpu", reason="is about the comparison")
def test_gelu_as_gpus_compute_it_is_not_wrong():
    wrong = []
    with other_kernels.computing(other_kernels.AS_ON_GPUS):
        random_formulas.run(CANCELLED, show=wrong.append)
    assert not wrong, "\n".join(wrong)


# The seeds of formulas whose numbers show the fault.
@pytest.mark.parametrize(
    ("fault", "seed"),
    list(zip(other_kernels.FAULTS, [125, 1759, 2992, 59, 119, 24, 106], strict=True)),
)
@pytest.mark.skipif(DEVICE != "cpu", reason="is about the comparison")
def test_a_fault_is_found(fault, seed):
    name, other = other_kernels.FAULTS[fault]
    assert other_kernels.uses(seed, name)
    wrong = []
    with other_kernels.computing({name: other}):
        found = random_formulas.run([seed], show=wrong.append)
    # Faulty, rather than refused.
    assert found.wrong == [seed] and "Error: " not in wrong[0] and ": found " in wrong[0]
    assert random_formulas.run([seed]).wrong == []
