# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's own builders, which serve the ops that Opdock has no plugin for."""

import contextlib
import fcntl
import os
import threading
import time

from opdock._errors import NotFoundError

_held = set()  # descriptors of locks that this process has
_lock = threading.Lock()  # of _inside
_inside = 0  # threads in no_stale_lock()


def _drop_inherited():
    """A forked child does not keep what its parent has: the parent's lock stays."""
    global _lock
    _lock = threading.Lock()
    for file in _held:
        os.close(file)
    _held.clear()


os.register_at_fork(after_in_child=_drop_inherited)


def _is_open_elsewhere(file):
    """Whether a process has the file of this descriptor open too. A file system that cannot tell
    (NFS) counts as yes."""
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return True
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


class KernelBaton:
    """torch's lock of a build's folder, held by the kernel: it ends with the process.

    torch's is a file whose being there is the lock: after SIGKILL it stays, and whoever asks next
    waits for ever. Here a kernel's lock decides, on a file beside it. torch's file is made as well,
    for processes without Opdock, and one of theirs counts while its maker has it open, as torch
    keeps it until it has built.
    """

    def __init__(self, lock_file_path, wait_seconds=0.1, warn_after_seconds=None):
        self.lock_file_path = lock_file_path
        self._seconds = wait_seconds
        self._files = []  # the kernel's lock, torch's file

    def _lock(self, how):
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(f"{self.lock_file_path}.opdock", flags, 0o600)
        try:
            fcntl.flock(file, how)
        except BlockingIOError:
            os.close(file)
            return None
        except BaseException:
            os.close(file)
            raise
        return file

    def _is_theirs(self):
        """Whether a process without Opdock builds: torch's file is there, and open."""
        try:
            file = os.open(self.lock_file_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            return _is_open_elsewhere(file)
        finally:
            os.close(file)

    def _make_torchs(self):
        """torch's file, made and opened by this process; None if another one has it."""
        flags = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for _ in range(2):
            with contextlib.suppress(FileExistsError):
                return os.open(self.lock_file_path, flags, 0o600)
            if self._is_theirs():
                return None
            # torch closes its file before it removes it: only one that stays was left by the dead.
            time.sleep(min(self._seconds, 0.1))
            if self._is_theirs():
                return None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.lock_file_path)
        return None

    def try_acquire(self):
        """Whether this process has it now."""
        file = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
        if file is None:
            return False
        theirs = self._make_torchs()
        if theirs is None:
            os.close(file)
            return False
        self._files = [file, theirs]
        _held.update(self._files)
        return True

    def wait(self):
        """Waits until the process that has it releases it or ends."""
        os.close(self._lock(fcntl.LOCK_SH))
        while self._is_theirs():
            time.sleep(self._seconds)

    def release(self):
        """Gives it up."""
        if self._files and _held.issuperset(self._files):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.lock_file_path)  # while the kernel's lock is held
            for file in reversed(self._files):
                _held.discard(file)
                os.close(file)
        self._files = []


@contextlib.contextmanager
def no_stale_lock():
    """Within it torch's build of extensions waits for no lock of a process that has ended."""
    global _inside
    from torch.utils import cpp_extension
    from torch.utils.file_baton import FileBaton

    with _lock:
        _inside += 1
        cpp_extension.FileBaton = KernelBaton
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                cpp_extension.FileBaton = FileBaton


def own_builder(class_name, op):
    """An instance of DeepSpeed's own builder of that class name. Imports DeepSpeed.

    Raises NotFoundError if DeepSpeed is not installed or has no such builder.
    """
    try:
        from deepspeed.ops import op_builder
    except ImportError as error:
        raise NotFoundError(
            f"{op}: found neither a plugin of Opdock's nor DeepSpeed ({error}), wanted one of "
            "them; install deepspeed, whose own builder then serves the op"
        ) from error
    found = getattr(op_builder, class_name, None)
    if found is None:
        version = getattr(__import__("deepspeed"), "__version__", "")
        raise NotFoundError(
            f"{op}: found no {class_name} in DeepSpeed {version}, wanted its own builder, since "
            "Opdock has no plugin for the op; use a version that has it"
        )
    made = found()
    if type(made).__name__ == "NotImplementedBuilder":
        raise NotFoundError(
            f"{op}: found no {class_name} in DeepSpeed for the accelerator here, wanted its own "
            "builder, since Opdock has no plugin for the op; use a machine that has the accelerator"
        )
    return made
