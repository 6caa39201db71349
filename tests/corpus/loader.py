# SPDX-License-Identifier: Apache-2.0
"""Asks the dynamic loader about a file, in a child process with a clean environment."""

import dataclasses
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = 90

# ctypes.CDLL calls dlopen; the answer goes to a file of its own, apart from the library's output.
IN_PYTHON = """
import ctypes, os, sys
try:
    ctypes.CDLL(sys.argv[2], mode=os.RTLD_NOW | os.RTLD_LOCAL)
except OSError as error:
    os.write(int(sys.argv[1]), ("refused " + str(error)).encode())
else:
    os.write(int(sys.argv[1]), b"loaded")
os._exit(0)
"""


@dataclasses.dataclass(frozen=True)
class Answer:
    """outcome: "loaded", "refused" (text is the loader's message), "killed" (the loader itself
    ended the process), "in-constructor" (the file was loaded, then its own code ended the process)
    or "no-answer" (the time ran out)."""

    outcome: str
    text: str = ""

    @property
    def loads(self):
        """True or False, or None if it is unknown."""
        if self.outcome in ("loaded", "in-constructor"):
            return True
        return False if self.outcome in ("refused", "killed") else None


class Loader:
    """Asks in plain processes, or in processes of a Python. Threads may share one."""

    def __init__(self, folder):
        """Compiles the program that asks into `folder`."""
        source = Path(__file__).with_name("dlopen_one.c")
        self.plain = [str(Path(folder) / "dlopen_one")]
        # Without -rdynamic and with only the C library linked, the process provides no other
        # symbols.
        subprocess.run(["cc", "-O1", "-o", self.plain[0], str(source), "-ldl"], check=True)
        self.python = [sys._base_executable, "-I", "-S", "-c", IN_PYTHON]

    def ask(self, path, cwd, python=False, home=None, seconds=SECONDS):
        """Returns the Answer for one file within `seconds`; `cwd` is the child's folder."""
        command = self.python if python else self.plain
        done, said = self.run(command, path, cwd, home or cwd, {}, seconds)
        if said == "loaded":
            return Answer("loaded")
        if said.startswith("refused "):
            return Answer("refused", said[8:])
        if done is None or done.returncode == -signal.SIGALRM:
            return Answer("no-answer", f"no answer within {seconds} s")
        text = done.stderr.strip()[-300:]
        if done.returncode < 0:
            text = f"{signal.Signals(-done.returncode).name} {text}".strip()
        else:
            text = f"exit status {done.returncode} {text}".strip()
        # The loader logs a file before it runs that file's constructors, which shows whose fault it
        # was.
        again, _ = self.run(command, path, cwd, home or cwd, {"LD_DEBUG": "files"})
        trace = again.stderr if again else ""
        opened = trace.rfind(f"file={path}")
        if re.search(r"calling init: ", trace[opened:] if opened >= 0 else ""):
            return Answer("in-constructor", text)
        return Answer("killed", text)

    def run(self, command, path, cwd, home, variables, seconds=SECONDS):
        """Returns (finished process, or None if the time ran out; its answer)."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), **variables}
        # The answer has a file of its own, so that output of the library's code cannot mix with it.
        with tempfile.TemporaryFile() as answer:
            words = [*command, str(answer.fileno()), str(path)]
            try:
                done = subprocess.run(
                    words,
                    cwd=cwd,
                    env=environment,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    stdin=subprocess.DEVNULL,
                    timeout=seconds,
                    pass_fds=[answer.fileno()],
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return None, ""
            answer.seek(0)
            return done, answer.read().decode(errors="replace")
