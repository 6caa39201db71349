# SPDX-License-Identifier: Apache-2.0
"""Bounds on how far each result of inference.py's calls may be from float64.

The numbers are those of tests/deepspeed/inference_cases.py. The tests' bounds are for sums of up to
SUMMED elements; float32's sums round once an element, so the bound of a longer sum grows in
proportion to its length. With the suffix "tf32" products are rounded to TF32, whose mantissa has
float16's length; both factors of each product are rounded."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "deepspeed"))
from inference_cases import ACTIVATED, BOUNDS, WEIGHTS

SUMMED = 96


def close(times=1.0, activated=None):
    """Bounds within `times` the usual ones; activated() returns the magnitudes that an activation
    has multiplied."""

    def bound(wanted, suffix, on_gpu):
        suffix = "fp32" if suffix == "tf32" else suffix
        rtol, atol = (number * times for number in BOUNDS[suffix])
        allowed = atol + rtol * wanted.abs()
        if activated is not None and on_gpu:
            allowed = allowed + ACTIVATED[suffix] * activated().abs()
        return allowed

    return bound


def norm_of_sum(share):
    """Bounds a norm of a sum that was rounded first, compared with the norm of the exact sum.
    share(): magnitudes of the sum's part in each element. In float32 a sum of three has three
    roundings."""

    def bound(wanted, suffix, on_gpu):
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(suffix, torch.float32)
        rounding = torch.finfo(dtype).eps / 2 * (3 if dtype == torch.float32 else 1.01)
        return close(2)(wanted, suffix, on_gpu) + rounding * share()

    return bound


def attention(values, times=5.0):
    """Bounds weighted means of `values`. For TF32 the float32 weights and values are rounded
    too."""

    def bound(wanted, suffix, on_gpu):
        largest = values.double().abs().max()
        rtol, atol = (number * times for number in BOUNDS["fp16" if suffix == "tf32" else suffix])
        more = WEIGHTS["fp16" if suffix == "tf32" else suffix] * largest if on_gpu else 0
        return atol + more + rtol * wanted.abs()

    return bound


def product(roundings, summed):
    """Bounds a product that adds up `summed` elements after `roundings` roundings."""

    def bound(wanted, suffix, on_gpu):
        scale = wanted.abs() + wanted.square().mean().sqrt()
        if suffix == "fp32":
            unit = torch.finfo(torch.float32).eps / 2 * 8 * max(1.0, summed / SUMMED)
            return unit * roundings * scale
        half = torch.finfo(torch.bfloat16 if suffix == "bf16" else torch.float16).eps / 2
        unit = 2 * half if suffix == "tf32" else half
        return unit * (roundings + (2 if on_gpu else 0)) * scale

    return bound


def worst(found, wanted, bound):
    """Returns the largest error as a multiple of the bound; infinity for NaN."""
    if not wanted.numel():
        return 0.0
    times = ((found.double() - wanted).abs() / bound).nan_to_num(torch.inf)
    return times.masked_fill(found.double() == wanted, 0).max().item()
