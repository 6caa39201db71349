# SPDX-License-Identifier: Apache-2.0
"""Tests opdock bench --tune and --forget, with a plugin whose op returns the way that it took."""

import os
import random
import shutil
import sys

import pytest
from conftest import BUILD, SOURCE, run

from opdock._author.choose import OWN, choose

WAYS = SOURCE / "tests/unit/tune/ways"
ASK = """
import numpy, opdock
x = numpy.ones(1, "float32")
print(*[opdock.ops.ways(x, question) for question in (1, 9, 5)])
"""


@pytest.fixture
def tuned(opdock, cache, tmp_path):
    """Returns functions that run the command, and that return the ways a fresh process then gets
    for questions 1, 9 and 5. Both find the built plugin, and a folder with its source."""
    shutil.copytree(WAYS, tmp_path / "plugins" / "ways")
    found = [BUILD / "tests/unit/tune/ways.so", tmp_path / "plugins"]
    settings = {"OPDOCK_PLUGIN_PATH": ":".join(map(str, found)), "OPDOCK_CACHE_DIR": cache}
    settings["OPDOCK_BUILD"] = "never"

    def command(*words, **more):
        return opdock("bench", *words, **{**settings, **more})

    command.ways = lambda: run(sys.executable, "-c", ASK, **settings).stdout.split()
    command.settings = settings
    command.source = tmp_path / "plugins" / "ways"
    yield command
    assert command("--forget").returncode == 0


def test_the_fastest_way_is_kept_and_forgotten(tuned):
    assert tuned.ways() == ["0", "0", "0"]
    done = tuned("--tune", tuned.source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", "no progress where there is no terminal"
    lines = [line.split() for line in done.stdout.splitlines()]
    rows = {line[0]: line for line in lines if line[1:3] == ["2x3", "float32"]}
    assert list(rows) == ["ways", "ways_double", "ways_9"], done.stdout
    for row in rows.values():
        assert row[4] == "3" and row[7:9] == ["way", "1"], row
        own, best = float(row[5]), float(row[9])
        assert own > 6000 and 1000 < best < own, row
        # The printed times are rounded; the gain is computed from the unrounded ones.
        assert row[11][0] == "+" and row[11][-1] == "%"
        assert float(row[11][:-1]) == pytest.approx(100 * (own / best - 1), abs=0.11)
    assert "Of 2 questions 2 have a faster way" in done.stdout
    assert "opdock bench --forget ways" in done.stdout

    assert tuned.ways() == ["1", "1", "0"]
    # A second run measures against the op's own way again, not against the stored choice.
    again = tuned("--tune", "ways")
    assert again.returncode == 0 and "2 have a faster way" in again.stdout, "measured from its own"
    done = tuned("--forget", "ways")
    assert done.returncode == 0 and done.stdout.startswith("forgot 2 choices of ways 1.0.0 on ")
    assert tuned.ways() == ["0", "0", "0"]
    assert "nothing is stored of ways in" in tuned("--forget", tuned.source).stdout


def test_without_names_all_source_plugins_with_benches_are_measured(tuned):
    (tuned.source / "bench_ways.py").write_text(
        "import opdock, torch\n"
        "SHAPES, DTYPES = [(1,)], [torch.float32, torch.int32]\n"
        "def candidates(x):\n"
        "    yield 'ways', 'opdock', 1, lambda: opdock.ops.ways(x)\n"
    )
    done = tuned("--tune", "--device", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Of 1 questions 1 have" in done.stdout
    # The op does not take int32; the other cases are measured.
    assert "skipped ways 1 int32 cpu: " in done.stdout
    assert tuned.ways() == ["1", "0", "0"]


def test_what_leaves_no_choice_is_said(tuned):
    (tuned.source / "bench_ways.py").write_text(
        "import opdock, torch\n"
        "SHAPES, DTYPES = [(1,)], [torch.float32]\n"
        "def candidates(x):\n"
        "    yield 'ways', 'opdock', 1, lambda: opdock.ops.ways(x, 0)\n"
    )
    done = tuned("--tune", "ways")
    assert done.returncode == 0 and "no call on cpu leaves a choice" in done.stdout


def test_what_asks_nothing_on_the_cpu_is_passed_over_at_once(tuned, tmp_path):
    """One call with the smallest shape suffices: the other shapes are neither made nor called."""
    (tuned.source / "bench_ways.py").write_text(
        "import opdock, torch\n"
        "SHAPES, DTYPES = [(1 << 20,), (2,), (1 << 10, 1 << 10)], [torch.float32]\n"
        "def candidates(x):\n"
        f"    with open({str(tmp_path / 'log')!r}, 'a') as log: print(*x.shape, file=log)\n"
        "    yield 'ways', 'opdock', 1, lambda: opdock.ops.ways(x, 0)\n"
    )
    done = tuned("--tune", "ways", "--device", "cpu")
    assert done.returncode == 0 and "ways: no call on cpu leaves a choice" in done.stdout
    assert (tmp_path / "log").read_text() == "2\n"


def test_a_plugin_that_nobody_finds_is_built(tuned, python, tmp_path):
    """The stand-in for `opdock build` names the built plugin."""
    command = tmp_path / "opdock-stand-in"
    shared = BUILD / "tests/unit/tune/ways.so"
    command.write_text(f'#!/bin/sh\necho \'{{"path": "{shared}"}}\'\n')
    command.chmod(0o755)
    (tmp_path / "none").mkdir()
    program = "import sys; from opdock._author import commands as c; sys.exit(c.main(sys.argv[1:]))"
    settings = {**tuned.settings, "OPDOCK_PLUGIN_PATH": tmp_path / "none"}
    words = [python, "-c", program, command, "tune", "cpu", tuned.source]
    done = run(*words, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no plugin of that name is found here" in done.stdout
    assert tuned.ways() == ["1", "1", "0"], "the same build"


@pytest.mark.parametrize(
    "words, status, wanted",
    [
        ([], 2, "no PATH"),
        (["--device", "cpu", "."], 2, "--device"),
        (["--tune", "--forget"], 2, "--forget"),
        (["--tune", "./nowhere"], 2, "o such file"),
        (["--tune", "nowhere"], 1, "found no source plugin 'nowhere'"),
        (["--tune", "ways", "--device", "cuda:77"], 1, "--device: found cuda:77"),
    ],
)
def test_mistakes_are_said(tuned, words, status, wanted):
    if "cuda:77" in words and os.path.exists("/dev/nvidiactl"):
        pytest.skip("torch may reach a GPU here")
    done = tuned(*words)
    assert done.returncode == status and wanted in done.stderr, done.stdout + done.stderr


def test_a_test_tries_each_way(tuned, python):
    program = (
        "import numpy, opdock\n"
        "from opdock.testing import with_each_choice\n"
        "x = numpy.ones(1, 'float32')\n"
        "for question in (1, 9, 0):\n"
        "    print(with_each_choice(lambda: opdock.ops.ways(x, question)))\n"
        "print(opdock.ops.ways(x))\n"
    )
    done = run(python, "-c", program, **tuned.settings)
    assert done.stdout.splitlines() == [
        "[(-1, 0), (0, 0), (1, 1), (2, 2)]",
        "[(-1, 0), (0, 0), (1, 1)]",  # way 2 cannot be taken
        "[(-1, 0)]",  # nothing is asked
        "0",
    ], done.stderr


def test_benches_without_candidates_are_said(tuned):
    (tuned.source / "bench_ways.py").write_text("")
    done = tuned("--tune", "ways")
    assert done.returncode == 1 and "found no candidates(x)" in done.stderr
    (tuned.source / "bench_ways.py").unlink()
    done = tuned("--tune", "ways")
    assert done.returncode == 1 and "found no bench_*.py" in done.stderr


def test_where_nothing_can_be_stored_nothing_is_measured(tuned):
    done = tuned("--tune", "ways", OPDOCK_CACHE_DIR="/dev/null/cache")
    assert (
        done.returncode == 1 and "cache-unusable" in done.stderr and "SITUATION" not in done.stdout
    )


# ---- the choice itself


def noisy(microseconds, noise, seed):
    source = random.Random(seed)
    return [microseconds * (1 + noise * source.gauss(0, 1)) for _ in range(9)]


@pytest.mark.parametrize("seed", range(20))
def test_a_way_must_be_faster_by_more_than_the_noise(seed):
    def times(**ways):
        return {
            OWN if name == "own" else int(name[1:]): noisy(us, noise, (seed, name).__repr__())
            for name, (us, noise) in ways.items()
        }

    assert choose([times(own=(100, 0.01), _0=(100, 0.01), _1=(90, 0.01))]) == 1
    assert choose([times(own=(100, 0.001), _0=(99.8, 0.001))]) == OWN, "not worth it"
    assert choose([times(own=(100, 0.01), _0=(110, 0.01))]) == OWN
    # Where several situations have one answer, the total counts; a way that one of them cannot take
    # does not.
    fast, slow = times(own=(100, 0.01), _0=(50, 0.01)), times(own=(100, 0.01), _0=(300, 0.01))
    assert choose([fast]) == 0 and choose([fast, slow]) == OWN
    both = times(own=(100, 0.01), _0=(50, 0.01), _1=(70, 0.01))
    assert choose([both, times(own=(10, 0.01), _1=(8, 0.01))]) == 1


def test_noise_alone_rarely_makes_a_choice():
    chosen = 0
    for seed in range(200):
        times = {way: noisy(100, 0.05, f"{seed} {way}") for way in (OWN, 0, 1, 2)}
        chosen += choose([times]) != OWN
    assert chosen < 20
