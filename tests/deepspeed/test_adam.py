# SPDX-License-Identifier: Apache-2.0
"""Tests fused_adam and cpu_adam against Adam written out in float64."""

import math

import pytest
import torch

import opdock

STEP = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "weight_decay": 0.1}
# The largest error of a step, relative to the parameters' magnitude: one rounding of the dtype.
ERRORS = {torch.float32: 4e-7, torch.float16: 6e-4, torch.bfloat16: 5e-3, torch.float64: 1e-15}


def oracle(decoupled, number, tensors, bias_correction, step):
    """Computes one step for [parameter, gradient, first, second moment] in float64."""
    p, g, m, v = (tensor.double() for tensor in tensors)
    lr, beta1, beta2, epsilon, decay = step.values()
    if not decoupled:
        g = g + decay * p
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    c1, c2 = (1 - beta**number if bias_correction else 1 for beta in (beta1, beta2))
    update = (m / c1) / (torch.sqrt(v / c2) + epsilon)
    p = p - lr * (update + (decay * p if decoupled else 0))
    return p, m, v


def tensors(size, dtype, state=None, seed=0):
    made = torch.Generator().manual_seed(seed)
    p, g, m = (torch.randn(size, generator=made, dtype=torch.float64) for _ in range(3))
    v = torch.rand(size, generator=made, dtype=torch.float64)
    return [p.to(dtype), g.to(dtype), m.to(state or dtype), v.to(state or dtype)]


def error(found, wanted):
    scale = max(1.0, wanted.abs().max().item()) if wanted.numel() else 1.0
    return (found.double() - wanted).abs().max().item() / scale if wanted.numel() else 0.0


@pytest.fixture
def fused(compat):
    return compat.FusedAdamBuilder().load()


@pytest.fixture
def cpu(compat):
    module = compat.CPUAdamBuilder().load()
    yield module
    for number in list(module._decoupled):
        module.destroy_adam(number)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("bias_correction", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_multi_tensor_adam(fused, mode, bias_correction, dtype):
    sizes = [(64,), (22,), (3, 5, 7), (0,), (70001,), ()]
    lists = [tensors(size, dtype, seed=i) for i, size in enumerate(sizes)]
    for number in (1, 2, 7):
        wanted = [oracle(mode == 1, number, one, bias_correction, STEP) for one in lists]
        columns = [[one[k] for one in lists] for k in (1, 0, 2, 3)]
        flag = torch.zeros(1, dtype=torch.int32)
        found = fused.multi_tensor_adam(
            2048 * 32, flag, columns, 1e-2, 0.9, 0.99, 1e-8, number, mode, bias_correction, 0.1
        )
        assert found is None
        for one, expected in zip(lists, wanted, strict=True):
            for k, value in zip((0, 2, 3), expected, strict=True):
                assert error(one[k], value) <= ERRORS[dtype]


def test_no_tensors_is_no_step(fused):
    """DeepSpeed's function reads the dtype of the first tensor, which does not exist here."""
    fused.multi_tensor_adam(64, None, [[], [], [], []], 0.1, 0.9, 0.99, 1e-8, 1, 1, 1, 0.0)


def test_lists_and_modes_are_checked(fused):
    with pytest.raises(opdock.InvalidArgumentError, match="found 3 lists, wanted 4"):
        fused.multi_tensor_adam(64, None, [[], [], []], 0.1, 0.9, 0.99, 1e-8, 1, 1, 1, 0.0)
    with pytest.raises(opdock.InvalidArgumentError, match="found 2, wanted 0"):
        fused.multi_tensor_adam(64, None, [[], [], [], []], 0.1, 0.9, 0.99, 1e-8, 1, 2, 1, 0.0)
    short = [[torch.ones(4)], [torch.ones(4)], [torch.ones(4)], [torch.ones(3)]]
    with pytest.raises(opdock.InvalidArgumentError):
        fused.multi_tensor_adam(64, None, short, 0.1, 0.9, 0.99, 1e-8, 1, 1, 1, 0.0)


def update(cpu, number, one, bias_correction=True, optimizer=0, **changed):
    step = {**STEP, **changed}
    return cpu.adam_update(optimizer, number, *step.values(), bias_correction, *one)


# The grid of DeepSpeed's own test, and sizes around the vector length.
@pytest.mark.parametrize("size", [64, 22, 128, 1024, 1048576, 1, 15, 17])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("adamw", [True, False])
def test_adam_update(cpu, size, dtype, adamw):
    assert cpu.create_adam(0, 1e-3, 0.9, 0.999, 1e-8, 0.0, adamw, False) == 0
    one = tensors(size, dtype, torch.float32)
    for number in (1, 2):
        wanted = oracle(adamw, number, one, True, STEP)
        assert update(cpu, number, one) == 0
        assert error(one[0], wanted[0]) <= ERRORS[dtype]
        for k in (1, 2):
            assert error(one[k + 1], wanted[k]) <= ERRORS[torch.float32]


def test_without_bias_correction_and_other_numbers_each_step(cpu):
    cpu.create_adam(3)
    one = tensors(100, torch.float64)
    wanted = oracle(True, 5, one, False, {**STEP, "lr": 0.3, "beta2": 0.5})
    update(cpu, 5, one, False, 3, lr=0.3, beta2=0.5)
    assert error(one[0], wanted[0]) < 1e-6  # the op computes in float32


def test_a_late_step(cpu):
    cpu.create_adam(0)
    one = tensors(100, torch.float32)
    wanted = oracle(True, 20_000_000, one, True, STEP)
    update(cpu, 20_000_000, one)
    assert error(one[0], wanted[0]) <= ERRORS[torch.float32]


def test_gradients_of_other_strides(cpu):
    """The gradient comes from expand(); DeepSpeed copies such a gradient too."""
    cpu.create_adam(0)
    one = tensors((6, 4), torch.float32)
    one[1] = torch.full((1, 1), 0.5).expand(6, 4)
    wanted = oracle(True, 1, one, True, STEP)
    update(cpu, 1, one)
    assert error(one[0], wanted[0]) <= ERRORS[torch.float32]


def test_the_copy_has_all_dimensions(cpu):
    """DeepSpeed copies, and updates, only as many elements as the first dimension has."""
    cpu.create_adam(0)
    one = tensors((5, 7), torch.float32)
    copy = torch.zeros(5, 7, dtype=torch.float16)
    wanted = oracle(True, 1, one, True, STEP)
    assert cpu.adam_update_copy(0, 1, *STEP.values(), True, *one, copy) == 0
    assert error(one[0], wanted[0]) <= ERRORS[torch.float32]
    assert torch.equal(copy, one[0].half())


@pytest.mark.parametrize("adamw", [True, False])
@pytest.mark.parametrize("bias_correction", [True, False])
def test_a_step_is_taken_back(cpu, adamw, bias_correction):
    """DeepSpeed's rollback assumes AdamW with bias correction, whatever the step was."""
    cpu.create_adam(0, adamw_mode=adamw)
    one = tensors(1000, torch.float32)
    before = [tensor.clone() for tensor in one]
    update(cpu, 3, one, bias_correction)
    assert error(one[0], before[0].double()) > 1e-3
    assert cpu.adam_rollback(0, 3, *STEP.values(), bias_correction, *one) == 0
    for found, wanted in zip(one, before, strict=True):
        assert error(found, wanted.double()) < 2e-5


@pytest.mark.parametrize("adamw", [True, False])
@pytest.mark.parametrize(
    ("dtype", "state", "errors"),
    [
        (torch.float16, torch.float32, (2e-3, 1e-3, 1e-3)),
        (torch.bfloat16, torch.float32, (1.6e-2, 1e-3, 1e-3)),
        (torch.float16, torch.float16, (2e-3, 2e-3, 2e-3)),
        (torch.bfloat16, torch.bfloat16, (1.6e-2, 1e-2, 1e-2)),
    ],
)
def test_a_step_of_16_bits_is_taken_back(cpu, dtype, state, errors, adamw):
    """DeepSpeed prints an error and leaves the step as it is; its tests expect what is near."""
    cpu.create_adam(0, adamw_mode=adamw)
    one = tensors(1000, dtype, state)
    before = [tensor.clone() for tensor in one]
    update(cpu, 3, one, lr=0.1)
    assert error(one[0], before[0].double()) > 0.03
    assert cpu.adam_rollback(0, 3, *{**STEP, "lr": 0.1}.values(), True, *one) == 0
    assert torch.equal(one[1], before[1])
    for k, most in zip((0, 2, 3), errors, strict=True):
        assert one[k].dtype == before[k].dtype
        assert error(one[k], before[k].double()) <= most, k


def test_what_a_step_has_not_kept_comes_back_as_zero(cpu):
    """DeepSpeed makes infinities of the moments, and 0 of a parameter that is not finite."""
    cpu.create_adam(0)
    one = tensors(8, torch.float32)
    step = {**STEP, "beta1": 0.0, "lr": 10.0}  # and 1 - lr * weight_decay is 0
    cpu.adam_update(0, 1, *step.values(), True, *one)
    assert cpu.adam_rollback(0, 1, *step.values(), True, *one) == 0
    assert not one[0].any() and not one[2].any() and one[3].isfinite().all()


def test_parameters_on_another_device_are_refused(cpu):
    cpu.create_adam(0)
    one = tensors(8, torch.float32)
    with pytest.raises(opdock.InvalidArgumentError, match="'params': found a tensor on meta"):
        update(cpu, 1, [one[0].to("meta"), *one[1:]])


def test_an_optimizer_that_nobody_made(cpu):
    """DeepSpeed's function dereferences a null pointer here."""
    cpu.create_adam(4)
    with pytest.raises(opdock.InvalidArgumentError, match="found 9, wanted .*there is 4"):
        update(cpu, 1, tensors(8, torch.float32), optimizer=9)
    assert cpu.destroy_adam(4) == cpu.destroy_adam(4) == 0


def test_a_function_that_there_is_not(cpu):
    assert not hasattr(cpu, "no_such_function")


def test_torchs_adam_for_a_hundred_steps(cpu):
    """The weights equal those of torch.optim.AdamW in float64, up to float32's roundings."""
    cpu.create_adam(0)
    one = tensors(257, torch.float32)
    one[2].zero_()
    one[3].zero_()
    peer = torch.nn.Parameter(one[0].double())
    theirs = torch.optim.AdamW([peer], 1e-2, (0.9, 0.99), 1e-8, 0.1)
    for number in range(1, 101):
        one[1] = torch.sin(one[0] * number)
        peer.grad = torch.sin(peer.detach() * number)
        theirs.step()
        update(cpu, number, one)
    assert math.isfinite(one[0].sum())
    # Each step depends on the roundings before it: the sign of a small gradient may differ.
    assert (one[0].double() - peer).abs().median() < 1e-5
