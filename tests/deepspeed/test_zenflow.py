# SPDX-License-Identifier: Apache-2.0
"""Tests cpu_adam's steps in another process, against Adam written out in float64."""

import threading

import pytest
import torch
from conftest import needs_deepspeed, run_python
from test_adam import ERRORS, STEP, error, oracle
from test_with_deepspeed import IMPORTED

import opdock
from opdock.compat.deepspeed import cpu_adam

LISTS = tuple(STEP.values())


class Steps:
    """Two groups, and a control block for them."""

    def __init__(self, dtype):
        made = torch.Generator().manual_seed(3)
        self.params = [torch.randn(n, generator=made).to(dtype) for n in (70, 3001)]
        self.grads = [
            [torch.randn(p.shape, generator=made).to(dtype) for _ in "01"] for p in self.params
        ]
        self.stale = [torch.zeros_like(p) for p in self.params]
        self.moments = [
            [torch.zeros(p.shape, dtype=torch.float32) for _ in "0123"] for p in self.params
        ]
        self.memory = torch.zeros(cpu_adam.zenflow_adam_ctrl_size(), dtype=torch.uint8)
        self.at = self.memory.data_ptr()
        cpu_adam.zenflow_adam_ctrl_init(self.at, 2)

    def register(self, handle):
        for p, (g0, g1), m, stale in zip(
            self.params, self.grads, self.moments, self.stale, strict=True
        ):
            cpu_adam.zenflow_adam_register_group(handle, p, g0, g1, *m, stale)

    def submit(self, state, step, bias_correction=(1, 1), rates=(1e-2, 3e-3)):
        columns = [[number] * 2 for number in LISTS]
        columns[0] = list(rates)
        cpu_adam.zenflow_adam_submit(self.at, state, step, *columns, list(bias_correction))


@pytest.mark.parametrize("adamw", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_worker_takes_the_steps(adamw, dtype):
    """Each state has its own moments; rates and bias corrections are per group."""
    cpu_adam.create_adam(7, adamw_mode=adamw)
    handle = cpu_adam.zenflow_adam_create(7, [0])
    steps = Steps(dtype)
    steps.register(handle)
    worker = threading.Thread(
        target=cpu_adam.zenflow_adam_run_worker, args=(handle, steps.at), daemon=True
    )
    worker.start()
    for number, state in ((1, 0), (1, 1), (2, 0), (2, 1)):
        wanted = []
        for i, (p, g) in enumerate(zip(steps.params, steps.grads, strict=True)):
            first, second = steps.moments[i][state], steps.moments[i][2 + state]
            step = {**STEP, "lr": (1e-2, 3e-3)[i]}
            wanted.append(oracle(adamw, number, [p, g[state], first, second], i == 0, step)[0])
        steps.submit(state, number, bias_correction=(1, 0))
        assert cpu_adam.zenflow_adam_wait(steps.at, 60.0) is True
        for p, stale, expected in zip(steps.params, steps.stale, wanted, strict=True):
            assert error(p, expected) <= ERRORS[dtype] and torch.equal(p, stale)
    assert cpu_adam.zenflow_adam_wait(steps.at, 0.05) is False
    cpu_adam.zenflow_adam_ctrl_exit(steps.at)
    worker.join(60)
    assert not worker.is_alive()
    cpu_adam.zenflow_adam_destroy(handle)
    cpu_adam.zenflow_adam_destroy(handle)
    cpu_adam.destroy_adam(7)


def test_what_does_not_fit_is_refused():
    with pytest.raises(opdock.InvalidArgumentError, match="'optimizer_id': found 9"):
        cpu_adam.zenflow_adam_create(9, [])
    with pytest.raises(opdock.InvalidArgumentError, match="'handle': found 99"):
        cpu_adam.zenflow_adam_run_worker(99, 0)
    steps = Steps(torch.float32)
    with pytest.raises(opdock.InvalidArgumentError, match="wanted 2 of each"):
        cpu_adam.zenflow_adam_submit(steps.at, 0, 1, *[[1.0]] * 5, [1])
    with pytest.raises(opdock.InvalidArgumentError, match="found 1025, wanted at most 1024"):
        cpu_adam.zenflow_adam_ctrl_init(steps.at, 1025)
    with pytest.raises(opdock.InvalidArgumentError, match="'now_state': found 2"):
        steps.submit(2, 1)
    for call in (
        lambda at: cpu_adam.zenflow_adam_ctrl_init(at, 1),
        lambda at: cpu_adam.zenflow_adam_submit(at, 0, 1, *[[1.0]] * 5, [1]),
        lambda at: cpu_adam.zenflow_adam_wait(at, 0.0),
        cpu_adam.zenflow_adam_ctrl_exit,
    ):
        for wrong in (0, -8, None, steps.at + 1, "x"):
            with pytest.raises(opdock.InvalidArgumentError, match=r"\w+\(\).*'control_ptr'"):
                call(wrong)
    cpu_adam.create_adam(8)
    handle = cpu_adam.zenflow_adam_create(8, [])
    with pytest.raises(opdock.InvalidArgumentError, match="'grad1': found shape .3,."):
        p = torch.ones(4)
        cpu_adam.zenflow_adam_register_group(handle, p, p, torch.ones(3), p, p, p, p, None)
    with pytest.raises(AttributeError, match="zenflow_adam_nothing"):
        cpu_adam.zenflow_adam_nothing  # noqa: B018 (looking it up is the test)
    cpu_adam.zenflow_adam_destroy(handle)
    cpu_adam.destroy_adam(8)


@needs_deepspeed
def test_deepspeeds_own_optimizer_process(tmp_path):
    """DeepSpeed's function for that process runs unmodified in a process of its own."""
    script = tmp_path / "zenflow.py"
    script.write_text(
        """
import multiprocessing, os, torch
from opdock.compat import deepspeed as compat

def optimizer(*arguments):
    compat.install()
    from deepspeed.runtime.zenflow.zenflow_utils import zenflow_optimizer_process
    zenflow_optimizer_process(*arguments)

if __name__ == "__main__":
    compat.install()
    from deepspeed.ops.op_builder import CPUAdamBuilder
    op = CPUAdamBuilder().load()
    assert op.__name__ == "opdock.compat.deepspeed.cpu_adam"
    param, grad0, grad1, stale = (torch.ones(1000).share_memory_() for _ in range(4))
    twin = torch.nn.Parameter(param.clone())
    theirs = torch.optim.AdamW([twin], lr=1e-2, weight_decay=0.1)
    ctrl = torch.zeros(op.zenflow_adam_ctrl_size(), dtype=torch.uint8).share_memory_()
    op.zenflow_adam_ctrl_init(ctrl.data_ptr(), 1)
    context = multiprocessing.get_context("spawn")
    ready, cores = context.Event(), sorted(os.sched_getaffinity(0))
    groups = [(param, grad0, grad1, stale)]
    process = context.Process(target=optimizer, args=(groups, ctrl, ready, cores, True))
    process.start()
    assert ready.wait(200)
    for step in (1, 2, 3):
        grad0.copy_(torch.linspace(-1, 1, 1000) * step)
        op.zenflow_adam_submit(
            ctrl.data_ptr(), 0, step, [1e-2], [0.9], [0.999], [1e-8], [0.1], [1])
        twin.grad = grad0.clone()
        theirs.step()
        assert op.zenflow_adam_wait(ctrl.data_ptr(), 60.0)
        assert (param - twin).abs().max() < 1e-6 and torch.equal(param, stale)
    op.zenflow_adam_ctrl_exit(ctrl.data_ptr())
    process.join(60)
    assert process.exitcode == 0
"""
    )
    code = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    run_python(code, script, **IMPORTED)
