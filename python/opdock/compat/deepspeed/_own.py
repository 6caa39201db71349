# SPDX-License-Identifier: Apache-2.0
"""Runs DeepSpeed's own builders for ops that Opdock has no plugin for, without their stale
locks."""

import contextlib
import fcntl
import glob
import importlib.util
import os
import threading
import time

from opdock._errors import NotFoundError

_held = set()  # descriptors of the locks that this process holds
_lock = threading.Lock()  # guards _inside
_inside = 0  # number of threads in no_stale_lock()
_here = threading.local()  # .depth: how often this thread is in no_stale_lock()


def _drop_inherited():
    """Closes the inherited descriptors in a forked child, without releasing the parent's locks."""
    global _lock
    _lock = threading.Lock()
    for file in _held:
        os.close(file)
    _held.clear()


os.register_at_fork(after_in_child=_drop_inherited)


def _is_open_elsewhere(file):
    """Returns whether another process has this descriptor's file open. Also True on a file system
    that cannot tell (NFS)."""
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return True
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


class KernelBaton:
    """torch's lock of a build folder, implemented by a kernel lock, which ends with the process.

    torch's own lock is held while a file exists: after SIGKILL the file stays, and the next process
    waits for ever. Here a kernel lock on a second file decides. torch's file is also created, for
    processes without Opdock, and such a file made by another process counts while its maker has it
    open, which torch does until it has built.
    """

    def __init__(self, lock_file_path, wait_seconds=0.1, warn_after_seconds=None):
        self.lock_file_path = lock_file_path
        self._seconds = wait_seconds
        self._files = []  # descriptors of the kernel lock and of torch's file

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
        """Returns whether a process without Opdock is building: torch's file exists and is open."""
        try:
            file = os.open(self.lock_file_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            return _is_open_elsewhere(file)
        finally:
            os.close(file)

    def _make_torchs(self):
        """Creates torch's file and returns its descriptor; None if another process has it."""
        flags = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for _ in range(2):
            with contextlib.suppress(FileExistsError):
                return os.open(self.lock_file_path, flags, 0o600)
            if self._is_theirs():
                return None
            # torch closes its file before removing it, so only a file that stays is stale.
            time.sleep(min(self._seconds, 0.1))
            if self._is_theirs():
                return None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.lock_file_path)
        return None

    def try_acquire(self):
        """Tries to acquire the lock; returns whether this process holds it now."""
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
        """Waits until the process that holds the lock releases it or ends."""
        os.close(self._lock(fcntl.LOCK_SH))
        while self._is_theirs():
            time.sleep(self._seconds)

    def release(self):
        """Releases the lock."""
        if self._files and _held.issuperset(self._files):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.lock_file_path)  # while the kernel lock is held
            for file in reversed(self._files):
                _held.discard(file)
                os.close(file)
        self._files = []


@contextlib.contextmanager
def no_stale_lock():
    """A context in which torch's extension build does not wait for locks of processes that have
    ended."""
    global _inside
    from torch.utils import cpp_extension
    from torch.utils.file_baton import FileBaton

    with _lock:
        _inside += 1
        cpp_extension.FileBaton = KernelBaton
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        yield
    finally:
        _here.depth -= 1
        with _lock:
            _inside -= 1
            if _inside == 0:
                cpp_extension.FileBaton = FileBaton


def is_loading():
    """Returns whether this thread is loading an op by DeepSpeed's own builder."""
    return getattr(_here, "depth", 0) > 0


def is_installed(builder):
    """Returns whether the op's module was compiled when DeepSpeed was installed: whether its file
    is there. Imports nothing, since DeepSpeed takes seconds."""
    package, *below = builder.absolute_name().split(".")
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # something without a spec is in its place
        return False
    folders = getattr(spec, "submodule_search_locations", None) or ()
    patterns = (os.path.join(glob.escape(folder), *below) + ".*" for folder in folders)
    return any(map(glob.glob, patterns))


def own_builder(class_name, op):
    """Imports DeepSpeed; returns an instance of its own builder class `class_name`.

    op: the op's name, for messages. Raises NotFoundError if DeepSpeed is not installed or has no
    such builder.
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
