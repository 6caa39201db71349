# SPDX-License-Identifier: Apache-2.0
"""Runs Python programs, each in its own process that starts in milliseconds. A program is forked
from a server that has already imported torch, because the import takes longer than most programs.

    with Programs("import torch", environment) as programs:
        done = programs.run("print(1)", environment)

The server (this file run as a program) gets the prelude as its argument. It reads one program per
line from standard input, as JSON: {"text", "arguments", "env", "out", "err"}, where the last two
are files to write. It answers each with a line that holds the exit status, negative for a signal.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 600  # seconds


class Programs:
    """The client of the server. prelude: the code that all programs start with; it must start no
    threads."""

    def __init__(self, prelude, environment):
        words = [sys.executable, __file__, prelude]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.server = subprocess.Popen(words, env=environment, text=True, **pipes)

    def run(self, text, environment, *arguments):
        """Returns a CompletedProcess with texts. Loader variables such as LD_LIBRARY_PATH stay the
        server's."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder) / "out", Path(folder) / "err"
            asked = {"text": text, "arguments": list(map(str, arguments)), "env": dict(environment)}
            asked |= {"out": str(out), "err": str(err)}
            print(json.dumps(asked), file=self.server.stdin, flush=True)
            status = int(self.server.stdout.readline())
            return subprocess.CompletedProcess(text, status, out.read_text(), err.read_text())

    def close(self):
        self.server.stdin.close()
        self.server.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def become(program):
    os.environ.clear()
    os.environ.update(program["env"])
    for fd, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, program["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, program["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        os.dup2(os.open(path, flags), fd)
    # `python -c` has the same sys.path: the current folder, PYTHONPATH, and the interpreter's own.
    folders = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = ["", *folders, *OWN_PATH]
    sys.argv[:] = ["-c", *program["arguments"]]
    signal.alarm(LIMIT)


def serve():
    """Returns in each child the text to run, and in the parent None once the input ends."""
    for line in sys.stdin:
        program = json.loads(line)
        child = os.fork()
        if child == 0:
            become(program)
            return program["text"]
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


# At module level, so that a program ends as an ordinary interpreter does, exit handlers included.
if __name__ == "__main__":
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    OWN_PATH = [path for path in sys.path[1:] if path not in given]
    exec(compile(sys.argv[1], "<prelude>", "exec"), {"__name__": "__main__"})
    # A child collects garbage at its end at the latest. It would then visit all objects of the
    # prelude, and each visit writes to the object, so that most of the memory that the child shares
    # with the server would be copied.
    gc.collect()
    gc.freeze()
    text = serve()
    if text is not None:
        exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
