# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's own builders, which serve the ops that Opdock has no plugin for."""

import contextlib
import fcntl
import os
import threading

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


class KernelBaton:
    """torch's lock of a build's folder, held by the kernel: it ends with the process.

    In place of a file whose being there is the lock: after SIGKILL that one stays, and whoever asks
    next waits for ever.
    """

    def __init__(self, lock_file_path, wait_seconds=0.1, warn_after_seconds=None):
        self.lock_file_path = lock_file_path
        self._file = None

    def _lock(self, how):
        file = os.open(
            f"{self.lock_file_path}.opdock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(file, how)
        except BlockingIOError:
            os.close(file)
            return None
        except BaseException:
            os.close(file)
            raise
        return file

    def try_acquire(self):
        """Whether this process has it now."""
        self._file = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
        if self._file is not None:
            _held.add(self._file)
        return self._file is not None

    def wait(self):
        """Waits until the process that has it releases it or ends."""
        os.close(self._lock(fcntl.LOCK_SH))

    def release(self):
        """Gives it up."""
        if self._file in _held:
            _held.discard(self._file)
            os.close(self._file)
        self._file = None


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
