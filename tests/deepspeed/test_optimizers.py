# SPDX-License-Identifier: Apache-2.0
"""Tests cpu_adagrad, cpu_lion, fused_lamb and fused_lion against the formulas in float64."""

import math

import pytest
import torch

import opdock

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
# The largest error of a step, relative to the largest parameter: one rounding of the dtype.
ERRORS = {F32: 4e-7, F16: 6e-4, BF16: 5e-3}
# Sizes of DeepSpeed's own tests, and some around the vector length.
SIZES = [64, 22, 128, 1024, 1048576, 1, 15, 17]


def tensors(size, dtype, count=3):
    made = torch.Generator().manual_seed(size)
    return [torch.randn(size, generator=made, dtype=torch.float64).to(dtype) for _ in range(count)]


def assert_near(found, wanted):
    """Compares where the wanted number is not NaN."""
    sure = ~wanted.isnan()
    scale = max(1.0, wanted[sure].abs().max().item())
    assert (found.double() - wanted)[sure].abs().max().item() <= ERRORS[found.dtype] * scale


def lion(p, g, m, lr=1e-2, beta1=0.9, beta2=0.99, decay=0.1):
    """Returns the parameter and the average after a step, in float64. Where the direction is 0 but
    for rounding, the parameter is NaN."""
    p, g, m = (x.double() for x in (p, g, m))
    ahead = beta1 * m + (1 - beta1) * g
    change = torch.where(ahead.abs() < 1e-6, torch.nan, ahead.sign())
    return p * (1 - lr * decay) - lr * change, beta2 * m + (1 - beta2) * g


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_multi_tensor_lion(compat, dtype):
    module = compat.FusedLionBuilder().load()
    lists = [tensors(size, dtype) for size in [*SIZES[:4], 70001]]
    lists.insert(2, [torch.empty(0, dtype=dtype)] * 3)
    wanted = [lion(*one) for one in lists]
    columns = [[one[k] for one in lists] for k in (1, 0, 2)]
    flag = torch.zeros(1, dtype=torch.int32)
    assert module.multi_tensor_lion(65536, flag, columns, 1e-2, 0.9, 0.99, 1, 0.1) is None
    for one, (p, m) in zip(lists, wanted, strict=True):
        if p.numel():
            assert_near(one[0], p)
            assert_near(one[2], m)
    module.multi_tensor_lion(65536, flag, [[], [], []], 1e-2, 0.9, 0.99, 1, 0.1)
    with pytest.raises(opdock.InvalidArgumentError, match="found 4 lists, wanted 3: gradients"):
        module.multi_tensor_lion(65536, flag, [[]] * 4, 1e-2, 0.9, 0.99, 1, 0.1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_cpu_lion(compat, size, dtype):
    module = compat.CPULionBuilder().load()
    assert module.create_lion(0, 1e-3, 0.9, 0.99, 0.0, False) == 0
    p, g, m = tensors(size, dtype)
    m = m.float()
    copy = torch.zeros(size, dtype=F16)
    for number in (1, 2):
        wanted = lion(p, g, m)
        if number == 1:
            assert module.lion_update(0, 1, 1e-2, 0.9, 0.99, 0.1, p, g, m) == 0
        else:
            assert module.lion_update_copy(0, 2, 1e-2, 0.9, 0.99, 0.1, p, g, m, copy) == 0
        assert_near(p, wanted[0])
        assert_near(m, wanted[1])
    assert torch.equal(copy, p.half())
    assert module.destroy_lion(0) == module.destroy_lion(0) == 0


def test_a_parameter_without_gradient_stays(compat):
    """DeepSpeed's kernels move it by lr, the two of them in other directions."""
    zero = torch.zeros(100)
    p = torch.randn(100)
    before = p.clone()
    compat.FusedLionBuilder().load().multi_tensor_lion(
        64, None, [[zero], [p], [zero.clone()]], 0.1, 0.9, 0.99, 1, 0.0
    )
    assert torch.equal(before, p)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_cpu_adagrad(compat, size, dtype):
    """With weight decay, which DeepSpeed's tail of a tensor left out in 0.19.6."""
    module = compat.CPUAdagradBuilder().load()
    assert module.create_adagrad(0, 1e-2, 1e-8, 0.0, False) == 0
    p, g, v = tensors(size, dtype)
    v, copy, read = v.float().square(), torch.zeros(size, dtype=F16), g.clone()
    for number in (1, 2):
        grad = g.double() + 0.1 * p.double()
        total = v.double() + grad**2
        wanted = p.double() - 1e-2 * grad / (total.sqrt() + 1e-8)
        if number == 1:
            assert module.adagrad_update(0, 1, 1e-2, 1e-8, 0.1, p, g, v) == 0
        else:
            assert module.adagrad_update_copy(0, 2, 1e-2, 1e-8, 0.1, p, g, v, copy) == 0
        assert_near(p, wanted)
        assert_near(v, total)
    assert torch.equal(copy, p.half()) and torch.equal(read, g)
    assert module.destroy_adagrad(0) == module.destroy_adagrad(0) == 0


def lamb(p, g, m, v, scale, mode, bias_correction, step):
    """Returns parameter, averages and trust ratio after a step, in float64."""
    p, g, m, v = (x.double() for x in (p, g, m, v))
    g = g / scale
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g**2
    change = m / ((v + 1e-6).sqrt() if mode == 0 else v.sqrt() + 1e-6) + 0.1 * p
    ratio = (p.norm() / change.norm()).clamp(0.01, 10) if p.any() and change.any() else 1.0
    rate = 1e-2 * (math.sqrt(1 - 0.99**step) / (1 - 0.9**step) if bias_correction else 1)
    return p - rate * ratio * change, m, v, float(ratio)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("bias_correction", [0, 1])
@pytest.mark.parametrize("has_copy", [False, True])
def test_lamb(compat, mode, bias_correction, has_copy):
    """In float32, and with float16 gradients and a copy of the weight in float16."""
    module = compat.FusedLambBuilder().load()
    p, g, m, v = tensors(4099, F32, 4)
    v, g = v.square(), g.half() if has_copy else g
    copy = torch.zeros(4099, dtype=F16) if has_copy else torch.tensor([])
    for step, scale in ((1, 1.0), (2, 8.0), (3, torch.tensor(3.0))):
        wanted = lamb(p, g, m, v, float(scale), mode, bias_correction, step)
        found = module.lamb(
            p,
            copy,
            m,
            v,
            g,
            1e-2,
            0.9,
            0.99,
            10,
            0.01,
            1e-6,
            scale,
            step,
            mode,
            bias_correction,
            0.1,
        )
        for x, y in zip((p, m, v), wanted, strict=False):
            assert_near(x, y)
        assert found.shape == (1,) and found.dtype == F32
        assert found.item() == pytest.approx(wanted[3], rel=1e-5)
        assert not has_copy or torch.equal(copy, p.half())
    with pytest.raises(opdock.InvalidArgumentError, match="'mode': found 2"):
        module.lamb(p, copy, m, v, g, 1e-2, 0.9, 0.99, 10, 0.01, 1e-6, 1.0, 1, 2, 1, 0.1)


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_lamb_of_other_dtypes(compat, dtype):
    """DeepSpeed refuses bfloat16, and reads a float16 parameter as float32."""
    module = compat.FusedLambBuilder().load()
    p, g, m, v = tensors(300, dtype, 4)
    m, v = m.float(), v.float().square()
    wanted = lamb(p, g, m, v, 1.0, 1, 1, 1)
    empty = torch.tensor([])
    found = module.lamb(p, empty, m, v, g, 1e-2, 0.9, 0.99, 10, 0.01, 1e-6, 1.0, 1, 1, 1, 0.1)
    assert_near(p, wanted[0])
    assert found.dtype == (BF16 if dtype == BF16 else F32)


UPDATES = {
    "adagrad": lambda module, number, p, s: module.adagrad_update(number, 1, 0.1, 0.1, 0, p, p, s),
    "lion": lambda module, number, p, s: module.lion_update(number, 1, 0.1, 0.9, 0.9, 0, p, p, s),
}


@pytest.mark.parametrize("name", UPDATES)
def test_numbers_and_devices_are_checked(compat, name):
    """DeepSpeed's functions dereference a null pointer, and read a GPU's memory as the host's."""
    module = compat.BUILDERS[f"CPU{name.title()}Builder"]().load()
    getattr(module, f"create_{name}")(4)
    p, state = torch.ones(8), torch.ones(8)
    with pytest.raises(opdock.InvalidArgumentError, match="found 9, wanted .*there is 4"):
        UPDATES[name](module, 9, p, state)
    with pytest.raises(opdock.InvalidArgumentError, match="'params': found a tensor on meta"):
        UPDATES[name](module, 4, p.to("meta"), state)
    assert getattr(module, f"destroy_{name}")(4) == 0


@pytest.mark.parametrize("name", UPDATES)
def test_gradients_of_other_strides(compat, name):
    module = compat.BUILDERS[f"CPU{name.title()}Builder"]().load()
    getattr(module, f"create_{name}")(0)
    found = []
    for grad in (torch.full((1, 1), 0.5).expand(6, 4), torch.full((6, 4), 0.5)):
        p, state = torch.ones(6, 4), torch.zeros(6, 4)
        if name == "lion":
            module.lion_update(0, 1, 0.1, 0.9, 0.99, 0, p, grad, state)
        else:
            module.adagrad_update(0, 1, 0.1, 1e-8, 0, p, grad, state)
        found.append((p, state))
    torch.testing.assert_close(*found, rtol=0, atol=0)
