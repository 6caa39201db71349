# SPDX-License-Identifier: Apache-2.0
"""What the dynamic loader does with a file: asked in a child process, with no environment."""

import dataclasses
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = 90

# ctypes.CDLL is dlopen; the answer goes where the program's own output cannot mix with it.
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
    """outcome: "loaded", "refused" (the loader's message is text), "killed" (the loader itself
    ended the process), "in-constructor" (loaded, then the file's own code ended the process) or
    "no-answer" (time ran out)."""

    outcome: str
    text: str = ""

    @property
    def loads(self):
        """True or False, None where nothing can be said."""
        if self.outcome in ("loaded", "in-constructor"):
            return True
        return False if self.outcome in ("refused", "killed") else None


class Loader:
    """Asks in plain processes, or in processes of a Python. Threads may share one."""

    def __init__(self, folder):
        """Compiles the program that asks into `folder`."""
        source = Path(__file__).with_name("dlopen_one.c")
        self.plain = [str(Path(folder) / "dlopen_one")]
        # No -rdynamic and nothing linked but the C library: a process that brings nothing.
        subprocess.run(["cc", "-O1", "-o", self.plain[0], str(source), "-ldl"], check=True)
        self.python = [sys._base_executable, "-I", "-S", "-c", IN_PYTHON]

    def ask(self, path, cwd, python=False, home=None, seconds=SECONDS):
        """The Answer for one file, waited for so long; `cwd` is the child's folder."""
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
        # Whose fault: the loader names a file before it runs that file's constructors.
        again, _ = self.run(command, path, cwd, home or cwd, {"LD_DEBUG": "files"})
        trace = again.stderr if again else ""
        opened = trace.rfind(f"file={path}")
        if re.search(r"calling init: ", trace[opened:] if opened >= 0 else ""):
            return Answer("in-constructor", text)
        return Answer("killed", text)

    def run(self, command, path, cwd, home, variables, seconds=SECONDS):
        """(finished process or None where time ran out, what it answered)."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), **variables}
        # A file of its own: what the library's own code prints cannot mix with it.
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
