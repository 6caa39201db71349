# SPDX-License-Identifier: Apache-2.0
"""ZenFlow's part of cpu_adam: another process runs the optimizer's steps while this one trains.

The two processes share a control block, the bytes of a tensor in shared memory at the address
control_ptr: two semaphores of the C library and the step's numbers. One process submits steps, the
other runs them. The optimizer's process creates the optimizer and calls zenflow_adam_run_worker(),
which returns after zenflow_adam_ctrl_exit() in the other process. Needs 64-bit Linux.
"""

import ctypes
import errno
import os
import time

from opdock._errors import InvalidArgumentError
from opdock.compat.deepspeed import _adam

_MAX_GROUPS = 1024
_STEP, _EXIT = 0, 1
_NUMBERS = ("lr", "beta1", "beta2", "epsilon", "weight_decay")


class _Control(ctypes.Structure):
    _fields_ = [
        ("ready", ctypes.c_char * 32),  # sem_t
        ("done", ctypes.c_char * 32),
        ("command", ctypes.c_int64),
        ("state", ctypes.c_int64),
        ("step", ctypes.c_int64),
        ("groups", ctypes.c_int64),
        ("numbers", ctypes.c_double * (_MAX_GROUPS * len(_NUMBERS))),
        ("bias_correction", ctypes.c_uint8 * _MAX_GROUPS),
    ]


class _Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


# ctypes releases the GIL while it calls these functions.
_libc = ctypes.CDLL(None, use_errno=True)


class _Adam:
    """One optimizer. groups: a list of (param, grads, exp_avgs, exp_avg_sqs, stale); the middle
    three are pairs, one for each state."""

    def __init__(self, decoupled, cores):
        self.decoupled, self.cores, self.groups = decoupled, cores, []


_made = {}  # handle -> _Adam


def _control(function, control_ptr):
    """Returns the control block at that address. Only the address's form can be checked."""
    is_address = isinstance(control_ptr, int) and control_ptr > 0 and control_ptr % 8 == 0
    if not is_address:
        raise InvalidArgumentError(
            f"{function}(): argument 'control_ptr': found {control_ptr!r}, wanted the address of "
            "zenflow_adam_ctrl_size() bytes of shared memory; pass a tensor's data_ptr()"
        )
    return _Control.from_address(control_ptr)


def _semaphore(control, name):
    return ctypes.c_void_p(ctypes.addressof(control) + getattr(_Control, name).offset)


def _wait(control, name, *deadline):
    """Waits for the semaphore; returns False if the deadline, if given, passed first."""
    wait = _libc.sem_timedwait if deadline else _libc.sem_wait
    while wait(_semaphore(control, name), *deadline) != 0:
        if ctypes.get_errno() != errno.EINTR:
            return False
    return True


def _of(function, handle):
    try:
        return _made[handle]
    except KeyError:
        known = ", ".join(map(str, sorted(_made))) or "none"
        raise InvalidArgumentError(
            f"{function}(): argument 'handle': found {handle!r}, wanted one that "
            f"zenflow_adam_create() has made (there is {known}); call it first"
        ) from None


def create(decoupled, zf_affinity):
    """Creates an optimizer; returns its handle. zf_affinity: the cores that its steps may use."""
    handle = max(_made, default=-1) + 1
    _made[handle] = _Adam(decoupled, list(zf_affinity))
    return handle


def zenflow_adam_register_group(
    handle, param, grad0, grad1, exp_avg0, exp_avg1, exp_avg_sq0, exp_avg_sq1, stale
):
    """Adds a parameter, with gradients and moments for each of the two states.

    All are contiguous CPU tensors of param's shape. stale: a tensor that each step copies the new
    parameters to, or None. Raises InvalidArgumentError for another tensor or an unknown handle.
    """
    tensors = {"param": param, "grad0": grad0, "grad1": grad1, "exp_avg0": exp_avg0}
    tensors |= {"exp_avg1": exp_avg1, "exp_avg_sq0": exp_avg_sq0, "exp_avg_sq1": exp_avg_sq1}
    tensors |= {} if stale is None else {"stale": stale}
    for name, tensor in tensors.items():
        fits = tensor.device.type == "cpu" and tensor.is_contiguous()
        if not fits or tensor.shape != param.shape:
            raise InvalidArgumentError(
                f"zenflow_adam_register_group(): argument {name!r}: found shape "
                f"{tuple(tensor.shape)}, strides {tensor.stride()} on {tensor.device}, wanted "
                f"{tuple(param.shape)} without gaps on the CPU; pass .contiguous() tensors there"
            )
    _of("zenflow_adam_register_group", handle).groups.append(
        (param, (grad0, grad1), (exp_avg0, exp_avg1), (exp_avg_sq0, exp_avg_sq1), stale)
    )


def zenflow_adam_destroy(handle):
    """Removes the optimizer and its tensors; does nothing for an unknown handle."""
    _made.pop(handle, None)


def zenflow_adam_ctrl_size():
    """Returns the size of a control block in bytes."""
    return ctypes.sizeof(_Control)


def zenflow_adam_ctrl_init(control_ptr, num_groups):
    """Initializes a control block for num_groups groups; call it before the other process
    starts."""
    if not 0 <= num_groups <= _MAX_GROUPS:
        raise InvalidArgumentError(
            f"zenflow_adam_ctrl_init(): argument 'num_groups': found {num_groups}, wanted at most "
            f"{_MAX_GROUPS}; join parameters to fewer groups"
        )
    control = _control("zenflow_adam_ctrl_init", control_ptr)
    control.groups, control.command = num_groups, _STEP
    for name in ("ready", "done"):
        _libc.sem_init(_semaphore(control, name), 1, 0)


def zenflow_adam_submit(
    control_ptr, now_state, step, lr, beta1, beta2, eps, weight_decay, bias_correction
):
    """Submits the step number `step` with the gradients and moments of now_state, 0 or 1.

    The other arguments are lists with one number for each group. Returns at once; submit the next
    step only after zenflow_adam_wait() has returned True.
    """
    control = _control("zenflow_adam_submit", control_ptr)
    if now_state not in (0, 1):
        raise InvalidArgumentError(
            f"zenflow_adam_submit(): argument 'now_state': found {now_state!r}, wanted 0 or 1"
        )
    columns = (lr, beta1, beta2, eps, weight_decay)
    if any(len(column) != control.groups for column in (*columns, bias_correction)):
        raise InvalidArgumentError(
            f"zenflow_adam_submit(): found {[len(column) for column in columns]} numbers, wanted "
            f"{control.groups} of each, one for each group; see zenflow_adam_ctrl_init()"
        )
    for group, numbers in enumerate(zip(*columns, strict=True)):
        at = group * len(_NUMBERS)
        control.numbers[at : at + len(_NUMBERS)] = [float(number) for number in numbers]
        control.bias_correction[group] = bool(bias_correction[group])
    control.state, control.step, control.command = now_state, step, _STEP
    _libc.sem_post(_semaphore(control, "ready"))


def zenflow_adam_wait(control_ptr, timeout_s):
    """Waits for a submitted step; returns True when it is done, False after timeout_s seconds."""
    seconds, part = divmod(time.time() + timeout_s, 1)
    deadline = _Time(int(seconds), int(part * 1e9))
    return _wait(_control("zenflow_adam_wait", control_ptr), "done", ctypes.byref(deadline))


def zenflow_adam_ctrl_exit(control_ptr):
    """Makes zenflow_adam_run_worker() in the other process return."""
    control = _control("zenflow_adam_ctrl_exit", control_ptr)
    control.command = _EXIT
    _libc.sem_post(_semaphore(control, "ready"))


def zenflow_adam_run_worker(handle, control_ptr):
    """Runs the steps that the other process submits, until it calls zenflow_adam_ctrl_exit()."""
    adam = _of("zenflow_adam_run_worker", handle)
    control = _control("zenflow_adam_run_worker", control_ptr)
    cores = os.sched_getaffinity(0).intersection(adam.cores)
    if cores:
        os.sched_setaffinity(0, cores)  # applies to this thread and those that it starts
    while _wait(control, "ready") and control.command != _EXIT:
        _take_step(adam, control)
        _libc.sem_post(_semaphore(control, "done"))


def _take_step(adam, control):
    if control.groups != len(adam.groups):
        raise InvalidArgumentError(
            f"zenflow_adam_run_worker(): found {len(adam.groups)} groups, wanted the "
            f"{control.groups} of the control block; register each of them"
        )
    for group, (param, grads, means, squares, stale) in enumerate(adam.groups):
        at, state = group * len(_NUMBERS), control.state
        numbers = control.numbers[at : at + len(_NUMBERS)]
        _adam.step(
            adam.decoupled,
            control.step,
            [param],
            [grads[state]],
            [means[state]],
            [squares[state]],
            bias_correction=bool(control.bias_correction[group]),
            **dict(zip(_NUMBERS, numbers, strict=True)),
        )
        if stale is not None:
            stale.copy_(param)
