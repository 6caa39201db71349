# SPDX-License-Identifier: Apache-2.0
"""What the plugins' tests share: devices and dtypes to run on, references, tolerances."""

import importlib.util
import sys
from pathlib import Path

import pytest

try:
    import torch
except ImportError:
    torch = None
else:
    torch.set_num_threads(1)  # the oracles are small, and share the cores with what they test

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for row_cases

collect_ignore_glob = [] if torch else ["*/test_*.py"]

# Half a unit in the last place: the rounding of the result alone.
HALF_ULP = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a CUDA GPU")


def pytest_report_header():
    return None if torch else "skipped: the plugins' Python tests need torch"


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    """Each device in turn; tests on CUDA are skipped where torch reaches no GPU."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA GPU, or a torch without CUDA")
    return request.param


@pytest.fixture
def cuda():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU, or a torch without CUDA")
    return "cuda"


@pytest.fixture(params=["float32", "float16", "bfloat16"])
def dtype(request):
    return getattr(torch, request.param)


@pytest.fixture
def reference(request):
    """The module reference.py beside the test."""
    path = request.path.parent / "reference.py"
    spec = importlib.util.spec_from_file_location(f"reference_{path.parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def assert_close():
    """assert_close(found, oracle, computed): `oracle` is in float64; the difference may be the
    rounding of the result plus `computed`, an error relative to `scale` (default: the oracle)."""

    def check(found, oracle, computed, scale=None):
        name = str(found.dtype).removeprefix("torch.")
        scale = oracle.abs() if scale is None else scale
        smallest = {"float16": 2.0**-25, "bfloat16": 2.0**-134}.get(name, 2.0**-149)
        allowed = HALF_ULP[name] * 1.001 * oracle.abs() + computed * scale + smallest
        wrong = (found.double() - oracle).abs() > allowed
        wrong |= found.isnan() != oracle.isnan()
        count = int(wrong.sum())
        if count:
            at = tuple(int(i) for i in wrong.nonzero()[0])
            text = f"{count} of {wrong.numel()} elements differ; at {at} found {found[at].item()!r}"
            pytest.fail(f"{text}, wanted {oracle[at].item()!r}, allowed {allowed[at].item():.3g}")

    return check
