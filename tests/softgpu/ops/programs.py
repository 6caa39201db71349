# SPDX-License-Identifier: Apache-2.0
"""Runs programs, each in a process that was forked from this one: it has imported torch, and has
loaded nothing of Opdock or of a driver. Importing torch takes longer than most programs.

Standard input has a program a line, as JSON: {"text", "env", "out", "err"}, the last two files to
be written. The answer is a line with the exit status, negative for a signal.
"""

import json
import os
import signal
import sys

import torch

torch.set_num_threads(1)
LIMIT = 240  # seconds


def become(program):
    os.environ.clear()
    os.environ.update(program["env"])
    for fd, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, program["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, program["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        os.dup2(os.open(path, flags), fd)
    signal.alarm(LIMIT)


def serve():
    """Returns, in each child, the text to run; in the parent None, at the end."""
    for line in sys.stdin:
        program = json.loads(line)
        child = os.fork()
        if child == 0:
            become(program)
            return program["text"]
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


# At the top, so that a program's end is the interpreter's, with all that runs then.
text = serve()
if text is not None:
    exec(compile(text, "<program>", "exec"), {"__name__": "__main__"})
