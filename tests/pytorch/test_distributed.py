# SPDX-License-Identifier: Apache-2.0
"""Tests DTensor, DDP and FSDP2 with two processes, which do all cases one after the other."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("distributed_cases.py")
CASES = re.findall(r"^def case_(\w+)", PROGRAM.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Gives what both processes found: {case: "" or a traceback} of each."""
    import torch

    if not torch.distributed.is_gloo_available():
        pytest.skip("torch was built without gloo")
    store = tmp_path_factory.mktemp("distributed") / "store"
    done = subprocess.run(
        [sys.executable, PROGRAM, store], capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(Path(f"{store}.{rank}").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("case", CASES)
def test_case(outcomes, case):
    for found in outcomes:
        assert found[case] == "", found[case]
