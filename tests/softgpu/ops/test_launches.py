# SPDX-License-Identifier: Apache-2.0
"""How launches over rows are shaped: which begin early, and ways that were measured."""

from conftest import needs_nvrtc

# Each launch reads what the one before has written, and writes what that one has read.
CHAIN = """
    softmax, layer_norm = opdock.ops.softmax, opdock.ops.layer_norm
    silu = opdock.ops.silu
    for length in (64, 1000, 4096, 33000):
        x = torch.randn(3, length)
        here = move(x, device)
        a = layer_norm(softmax(silu(layer_norm(here))))
        for _ in range(2):
            softmax(a, out=a)
            layer_norm(a, out=a)
        y, rows = x.double(), (length,)
        norm = lambda y: torch.nn.functional.layer_norm(y, rows)
        y = norm(torch.nn.functional.silu(norm(y)).softmax(-1))
        for _ in range(2):
            y = norm(y.softmax(-1))
        worst = float((to_cpu(a).double() - y).abs().max() / y.abs().max())
        show(**{f"worst {length}": worst})
"""


def test_small_launches_wait_for_the_one_before(soft):
    needs_nvrtc()
    done = soft(CHAIN)
    assert done.findings == [] and len(done.shown) == 4
    assert max(done.shown.values()) < 1e-4, done.shown
    launches = done.events("launch")
    assert len(launches) == 32
    assert {launch["attributes"].get("programmatic") for launch in launches} == {True}


def test_gpus_without_such_launches(soft):
    needs_nvrtc()
    done = soft(CHAIN.replace("(64, 1000, 4096, 33000)", "(64,)"), gpus=[{"arch": "sm_89"}])
    assert done.findings == [] and done.shown["worst 64"] < 1e-4
    launches = done.events("launch")
    assert len(launches) == 8 and not any(launch.get("attributes") for launch in launches)


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
    run(STORE, ONE=one, WAY=9)  # a block reads its row again in each pass
    tuned = shapes()
    assert "long_rows" in tuned[0][0] and "long_rows" not in own[0][0]
    assert tuned[1:] == own[1:], "few rows, and longer ones, are other questions"
    run(STORE, ONE=one, WAY=-1)
    assert shapes() == own
