# SPDX-License-Identifier: Apache-2.0
"""Tests os.fork() while other threads or hooks run in the library; and files changed while in
use."""

import json
import os
import shutil

import pytest
from conftest import FORKED_CHILD
from test_chain import BUILD, Room, room  # noqa: F401 (a fixture)

PRELUDE = f"""\
import glob, json, threading, time, numpy, opdock
x = numpy.arange(4, dtype="float32")
{FORKED_CHILD}"""


@pytest.fixture
def triple(room: Room):  # noqa: F811 (the fixture by its name)
    room.add()
    return room


def test_while_another_thread_builds(triple):
    code = (
        PRELUDE
        + """
first = []
thread = threading.Thread(target=lambda: first.append(opdock.ops.triple(x).tolist()))
thread.start()
tmp = os.environ["OPDOCK_CACHE_DIR"] + "/v1/tmp/*"
while not glob.glob(tmp) and thread.is_alive():
    time.sleep(0.005)
status = child(lambda: (opdock.ops.triple(x) == 3 * x).all())
thread.join()
print(json.dumps([status, first]))
"""
    )
    assert triple.run(code).json == [0, [[0.0, 3.0, 6.0, 9.0]]]


def test_while_another_thread_scans(triple):
    code = (
        PRELUDE
        + """
opdock.ops.triple(x)
stop = threading.Event()
def scan():
    while not stop.is_set():
        opdock.plugins(rescan=True)
thread = threading.Thread(target=scan)
thread.start()
statuses = []
for i in range(30):
    time.sleep(0.002 + i * 0.0003)
    statuses.append(child(lambda: len(opdock.plugins()) > 0 and opdock.explain("triple")))
stop.set()
thread.join()
print(json.dumps(statuses))
"""
    )
    assert triple.run(code).json == [0] * 30


def test_while_another_thread_is_in_the_doctor(triple):
    code = (
        PRELUDE
        + """
stop = threading.Event()
def ask():
    while not stop.is_set():
        opdock.Runtime().doctor_json()
thread = threading.Thread(target=ask)
thread.start()
statuses = []
for i in range(CHILDREN):
    time.sleep(0.01)
    statuses.append(child(lambda: "version" in opdock.doctor()))
stop.set()
thread.join()
print(json.dumps(statuses))
"""
    )
    # A child takes a third of a second, since the doctor asks all compilers.
    children = 10 if "OPDOCK_TEST_NIGHTLY" in os.environ else 4
    assert triple.run(f"CHILDREN = {children}\n{code}").json == [0] * children


def test_by_a_reference_that_is_being_opened(triple, torch):
    # The child gets the error that the op would wait for itself.
    (triple.top / "plugins" / "triple" / "reference.py").write_text("""\
import os, signal, numpy, opdock
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    try:
        opdock.ops.triple(numpy.ones(4, "float32"))
        os._exit(1)
    except opdock.OpdockError as error:
        os._exit(0 if "within-itself" in str(error) else 2)
status = os.waitpid(pid, 0)[1]
def triple(x, *, by=3.0):
    return x * by + status
""")
    code = PRELUDE + "print(json.dumps(opdock.ops.triple(x).tolist()))"
    done = triple.with_torch(code, OPDOCK_BUILD="never", OPDOCK_FALLBACK="silent")
    assert done.json == [0.0, 3.0, 6.0, 9.0]


def test_the_doctor_tells_of_a_plugin_that_was_overwritten_while_loaded(room):  # noqa: F811 (the fixture by its name)
    plugin = room.top / "plugins" / "noop.so"
    shutil.copy(BUILD / "plugins" / "noop.so", plugin)
    # The file is overwritten in place as by cp: truncated, then the same bytes again. No code of it
    # may run after that, at exit either.
    code = (
        PRELUDE
        + f"""
opdock.ops.noop(x)
def loaded():
    return [c for c in opdock.doctor()["checks"] if c["name"] == "loaded plugins"]
before = loaded()
path = {str(plugin)!r}
with open(path, "rb") as file:
    content = file.read()
time.sleep(0.02)
with open(path, "wb") as file:
    file.write(content)
print(json.dumps([before, loaded()]), flush=True)
os._exit(0)
"""
    )
    before, after = room.run(code).json
    assert [check["ok"] for check in before] == [True]
    assert [check["ok"] for check in after] == [False]
    assert f"{plugin}, overwritten in place" in json.dumps(after)
    assert "rename" in json.dumps(after)
