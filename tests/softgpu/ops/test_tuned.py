# SPDX-License-Identifier: Apache-2.0
"""Tests that rows are launched in the way that measured fastest."""

from conftest import needs_nvrtc

ASK = """
    from opdock._author.stored import tuning
    x = torch.randn(300, LENGTH)
    tuning("measure")
    on(device, softmax)(x)
    (one,) = tuning("asked")["asked"]
    tuning("stop")
    show(**one)
"""
STORE = """
    from opdock._author.stored import tuning
    scope = {key: ONE[key] for key in ("plugin", "version", "build", "device")}
    result = {"question": ONE["question"], "choice": WAY, "count": ONE["count"], "situation": "",
              "default_us": 2, "best_us": 1}
    tuning("store", results=[result], **scope)
"""
USE = """
    for rows, length in ((300, LENGTH), (2, LENGTH), (300, 2 * LENGTH)):
        x = torch.randn(rows, length)
        assert wrong(on(device, softmax)(x), x) == 0
"""


def test_a_way_that_was_stored_is_used(soft, tmp_path):
    needs_nvrtc()

    def run(program, **values):
        for name, value in values.items():
            program = program.replace(name, repr(value))
        return soft(program, variables={"OPDOCK_CACHE_DIR": str(tmp_path / "cache")})

    def shapes():
        launches = run(USE, LENGTH=3000).events("launch")
        return [(launch["function"], launch["grid"], launch["block"]) for launch in launches]

    own = shapes()
    one = run(ASK, LENGTH=3000).shown
    assert one["plugin"] == "softmax" and one["count"] > 4
    run(STORE, ONE=one, WAY=9)  # in this way a block reads its row again in each pass
    tuned = shapes()
    assert "long_rows" in tuned[0][0] and "long_rows" not in own[0][0]
    assert tuned[1:] == own[1:], "few rows, and longer ones, are other questions"
    run(STORE, ONE=one, WAY=-1)
    assert shapes() == own
