# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the Python interpreter that starts in milliseconds, for commands that start Python
processes of their own: a test of `opdock test` starts up to four that import torch.

    with WarmPython("import torch", ["", "/drivers"]) as python:
        subprocess.run([python, "-m", "pytest", "-q"])

`python` is the path of a program, which is also these processes' sys.executable. It hands its
arguments, environment, folder, input and outputs to a server that has run the prelude, and the
server forks a process that does what the interpreter would. There is a server for each value of
LD_LIBRARY_PATH, because a process cannot change it. With another value, or with options other than
-c and -m, the program becomes a real interpreter.

programs.py does the same for programs that a test starts itself.
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 600  # seconds

CLIENT = """#!{python} -IS
import json, os, socket, sys
words, place = sys.argv[1:], {places}.get(os.environ.get("LD_LIBRARY_PATH", ""))
if place is None or not words or (words[0][:1] == "-" and words[0] not in ("-c", "-m")):
    os.execv({python!r}, [{python!r}, *words])
asked = {{"words": words, "env": dict(os.environ), "folder": os.getcwd(), "python": sys.argv[0]}}
text = json.dumps(asked).encode()
server = socket.socket(socket.AF_UNIX)
server.connect(place)
socket.send_fds(server, [len(text).to_bytes(4, "big")], [0, 1, 2])
server.sendall(text)
answer = server.recv(16)
if not answer:
    sys.exit("found no answer of " + place + ", wanted a status; its standard error has the cause")
status = int(answer)
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


class WarmPython:
    """The servers. prelude: code that all processes start with; it must start no threads. paths:
    the values of LD_LIBRARY_PATH; "" is none."""

    def __init__(self, prelude, paths):
        self.folder = tempfile.TemporaryDirectory()  # a socket's path has at most 107 bytes
        self.servers = []
        places = {}
        for number, path in enumerate(paths):
            places[path] = str(Path(self.folder.name) / f"server{number}")
            env = {name: v for name, v in os.environ.items() if name != "LD_LIBRARY_PATH"}
            env |= {"LD_LIBRARY_PATH": path} if path else {}
            words = [sys.executable, __file__, places[path], prelude]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.servers.append(subprocess.Popen(words, env=env, **pipes))
        for server in self.servers:
            assert server.stdout.readline() == b"listens\n"
        self.program = Path(self.folder.name) / "python"
        self.program.write_text(CLIENT.format(python=sys.executable, places=places))
        self.program.chmod(0o755)

    def __enter__(self):
        return self.program

    def __exit__(self, *_):
        self.close()

    def close(self):
        for server in self.servers:
            server.stdin.close()
            server.wait()  # so that its CPU time counts as this process's
            server.stdout.close()
        self.folder.cleanup()


def receive(connection):
    """Returns what a client asks for, and the files that are the process's first three."""
    length, files, _, _ = socket.recv_fds(connection, 4, 3)
    text = b""
    while len(text) < int.from_bytes(length, "big"):
        text += connection.recv(1 << 20)
    return json.loads(text), files


def become(asked, files):
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.executable = asked["python"]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    folders = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = ["", *folders, *OWN_PATH]
    signal.alarm(LIMIT)


def reap(options):
    """Waits for the children, so that their CPU time counts as the server's."""
    try:
        while os.waitpid(-1, options)[0]:
            pass
    except ChildProcessError:
        pass


def serve(listener):
    """Returns in each process what it was asked for, and in the server None once its input ends."""
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:
            reap(0)
            return None
        connection, _ = listener.accept()
        if os.fork() == 0:  # waits for the process, and tells the client of its end
            listener.close()
            asked, files = receive(connection)
            child = os.fork()
            if child == 0:
                connection.close()
                become(asked, files)
                return asked
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            connection.sendall(str(status).encode())
            os._exit(0)
        connection.close()
        reap(os.WNOHANG)


def run(words):
    """Does what the interpreter does with these arguments."""
    if words[0] == "-c":
        sys.argv[:] = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    elif words[0] == "-m":
        sys.argv[:] = words[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = words
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


# At module level, so that a process ends as an ordinary interpreter does, exit handlers included.
if __name__ == "__main__":
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    OWN_PATH = [path for path in sys.path[1:] if path not in given]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen()
    print("listens", flush=True)  # clients that come now wait until the prelude has run
    exec(compile(sys.argv[2], "<prelude>", "exec"), {"__name__": "__main__"})
    gc.collect()  # see programs.py
    gc.freeze()
    asked = serve(listener)
    if asked is not None:
        run(asked["words"])
