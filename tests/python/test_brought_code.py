# SPDX-License-Identifier: Apache-2.0
"""Tests that formulas of plugins are computed on the CPU by the compiled code that their plugins
bring, and that explain() says so."""

import json
import os
import platform
import subprocess
import sys

import pytest

ONE_OF_EACH = """
import json, numpy, opdock
def formula(op, *args, plugin="activation"):
    name = plugin + "/" + op
    opdock.load(name)(*args)
    (record,) = [one for one in opdock.explain(name)["chain"] if one["device"] == "cpu"]
    return record["formula"]
x, bias = numpy.ones((4, 64), numpy.float32), numpy.ones(64, numpy.float32)
print(json.dumps({
    "before": opdock.explain("activation/silu")["chain"][0]["formula"],
    "silu": formula("silu", x),
    "bias_relu": formula("bias_relu", x, bias),
    "gelu_mul_backward": formula("gelu_mul_backward", x, x, x),
    "dequantize": formula("dequantize", numpy.ones((4, 64), numpy.int8), bias, plugin="dequantize"),
    "rows": formula("silu_mul", x[:, :0], x[:, :0]),
}))
"""


def asked(**variables):
    env = {**os.environ, "OPDOCK_JIT": "never", **variables}
    run = [sys.executable, "-c", ONE_OF_EACH]
    return json.loads(subprocess.run(run, env=env, check=True, capture_output=True).stdout)


@pytest.mark.parametrize("limit", ["4", "2"])
def test_the_code_of_a_plugin_serves(limit):
    found = asked(OPDOCK_CPU_LEVEL=limit)
    assert found["before"] is None  # nothing has been computed yet
    for op in ("silu", "bias_relu", "dequantize"):
        told = found[op]
        assert (told["plugin"], told["compiled"], told["interpreted"]) == (1, 0, 0), (op, told)
        if platform.machine() == "x86_64":
            assert told["level"][:8] == "x86-64-v" and told["level"][8] <= limit
    assert found["gelu_mul_backward"] is None  # no formula
    assert found["rows"]["plugin"] == 0  # nothing to compute
