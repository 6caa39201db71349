# SPDX-License-Identifier: Apache-2.0
"""Values to test operations with, and how far results may be from their references."""

import torch

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
TYPES = [torch.bool, *INTEGERS, *FLOATS]


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def is_narrow(dtype):
    """Returns whether numbers of the type are computed as float32."""
    return dtype in (torch.float16, torch.bfloat16)


def special(dtype):
    """Returns the numbers of a type at which operations change what they do."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        near = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 63, 64, 100]
        ends = [info.max, info.max - 1, info.min, info.min + 1]
        below = [] if info.min == 0 else [-1, -2, -3, -7, -8, -100]
        return torch.tensor(near + below + ends, dtype=torch.int64).to(dtype)
    info = torch.finfo(dtype)
    least = info.smallest_normal * info.eps  # the smallest subnormal number
    numbers = [0, 1, 0.5, 1.5, 2, 2.5, 3, 0.1, 3.141592653589793, 7, 20, 20.5, 88.5, 104, 710]
    numbers += [1 + info.eps, 1 - info.eps / 2, 1e-3, 1e-6, float("inf"), float("nan")]
    numbers += [least, info.smallest_normal - least, info.smallest_normal, info.max]
    return torch.tensor([sign * x for x in numbers for sign in (1, -1)], dtype=torch.float64).to(
        dtype
    )


def random(dtype, count, generator):
    """Returns numbers of all magnitudes that the type has; most are near 1."""
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        bits = torch.randint(0, info.bits, (count,), generator=generator)
        whole = torch.randint(info.min, info.max, (count,), generator=generator)
        return (whole >> bits).to(dtype)
    x = torch.randn(count, generator=generator, dtype=torch.float64)
    wide = torch.randn(count, generator=generator, dtype=torch.float64) * 4
    return (x * torch.where(wide > 3, torch.exp2(wide * 2), 1)).to(dtype)


def pairs(dtype, generator, count=500):
    """Returns two tensors with all pairs of special numbers, and random ones."""
    x = special(dtype)
    a, b = x.repeat_interleave(len(x)), x.repeat(len(x))
    return tuple(torch.cat([part, random(dtype, count, generator)]) for part in (a, b))


def results_of(found):
    """Returns the results of a call as a tuple."""
    return found if isinstance(found, tuple) else (found,)


def ulp(x, dtype):
    """Returns the distance of numbers of the type near x, a float64 tensor."""
    info = torch.finfo(dtype)
    size = x.abs().clamp(info.smallest_normal, info.max)
    return torch.exp2(torch.frexp(size).exponent.double() - 1) * info.eps


def errors(found, wanted, ulps=0.5, extra=None):
    """Returns where `found` is farther from `wanted`, the exact numbers as float64, than `ulps` of
    the type in which found's numbers are computed, plus `extra`, plus for 16-bit floats one
    rounding."""
    dtype = found.dtype
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    if not dtype.is_floating_point:
        return found != wanted
    most = torch.tensor(torch.finfo(dtype).max, dtype=torch.float64)
    # A number that is rounded to infinity counts as the next one that the type would have.
    beyond = most if dtype == torch.float64 else most + ulp(most, dtype)
    got = found.double()
    there, here = got.clamp(-beyond, beyond), wanted.clamp(-beyond, beyond)
    # The reference is not exact either, but it has float64's precision.
    allowed = ulp(here, torch.float32 if is_narrow(dtype) else dtype) * (ulps + 1e-6)
    if dtype == torch.float64:
        allowed += 2 * ulp(here, dtype) * (ulps > 0.5)
    if is_narrow(dtype):
        allowed += ulp(here, dtype) * 0.5
    if extra is not None:
        allowed += extra
    bad = ~((there - here).abs() <= allowed)
    bad |= wanted.isinf() & (got != wanted)
    bad &= ~((wanted.isnan() & got.isnan()) | (got == wanted))
    return bad


def assert_near(found, wanted, ulps=0.5, extra=None, what="", inputs=()):
    """Fails with the first of the wrong elements."""
    bad = errors(found, wanted, ulps, extra)
    if bad.any():
        at = int(bad.reshape(-1).nonzero()[0])
        where = ", ".join(str(x.reshape(-1)[at].item()) for x in inputs)
        pytest_text = f"{what}({where}) = {found.reshape(-1)[at].item()!r} as {found.dtype}, "
        pytest_text += f"wanted {wanted.reshape(-1)[at].item()!r}; {int(bad.sum())} such elements"
        raise AssertionError(pytest_text)
