# SPDX-License-Identifier: Apache-2.0
"""Compares random formulas with the same computation in torch.

    random_formulas.py [--count N] [--seed FIRST] [--device cpu|cuda] [--gradients] [--only NAME]

A formula has up to 40 operations over up to six tensors of mixed dtypes, shapes and strides, and
special values among them. The reference is computed in float64 (integers exactly) by expressions
over torch that random_program.py writes beside the text; noisy.py says how far rounding may lead.
Values that change by more than that when intermediates are rounded differently, because a
comparison or a rounding turned out otherwise, are not judged.

The status is 1 if a result is wrong."""

import argparse
import dataclasses
import sys

import torch
from noisy import Noisy
from random_operations import is_float
from random_program import Program

import opdock
from opdock._author.on_device import on


def judge(found, runs, dtype, shape):
    """Returns (wrong, judged): masks over the elements of a result."""
    wanted = runs
    target = (runs.shape[0], *shape)
    if wanted.ndim == len(shape) + 2:  # the same in the whole row
        wanted = wanted[..., 0]
    wanted = wanted.expand(target)
    base = wanted[0]
    if not is_float(dtype):
        judged = (wanted == base).all(0)
        return (found != base) & judged, judged
    torch_type = getattr(torch, dtype)
    nans = wanted.isnan()
    as_is = wanted.isfinite().all(0)
    spread = torch.where(as_is, (wanted - base).abs().amax(0), 0)
    steady = as_is & (spread <= base.abs() * 0.01)
    # torch's functions lose the smallest numbers of float64: log1p(5e-324) is 0.
    least = 2e-323 if torch_type == torch.float64 else 0
    low, high = ((base + sign * (8 * spread + least)) for sign in (-1, 1))
    low, high = (_stored(x, torch_type) for x in (low, high))
    got = found.double()
    infinite = base.isinf() & (wanted == base).all(0)
    right = (
        (steady & (got >= low) & (got <= high))
        | (infinite & (got == base))
        | (nans.all(0) & got.isnan())
    )
    judged = steady | infinite | nans.all(0)
    return judged & ~right, judged


def _stored(x, dtype):
    if dtype == torch.float64:
        return x
    return x.float().to(dtype).double()


@dataclasses.dataclass
class Verdict:
    judged: int = 0
    open: int = 0
    wrong: list = dataclasses.field(default_factory=list)  # of texts


def compute(program, results, device, data):
    text, schema, tensors = program.write(results)
    numbers = [x for name, x in program.scalars.items() if f" {name}" in schema]
    function = opdock.formula(text, schema)
    found = on(device, function)(*[data[x.name] for x in tensors], *numbers)
    return (found if isinstance(found, tuple) else (found,)), tensors


def check(program, device="cpu", results=None):
    """Computes the formula both ways. Returns a Verdict."""
    verdict = Verdict()
    results = results or program.leaves()
    if not results:
        return verdict
    data = {x.name: x.data() for x in program.inputs}
    try:
        found, tensors = compute(program, results, device, data)
    except Exception as error:
        verdict.wrong.append(f"{type(error).__name__}: {error}")
        return verdict
    shapes, _ = program.shapes(results, tensors)
    for runs in (4, 100):  # what seems wrong is looked at with more noise
        verdict = Verdict()
        wanted = program.reference(results, tensors, Noisy(program.seed, runs), data)
        for name, got, want, shape in zip(results, found, wanted, shapes, strict=True):
            dtype = program.values[name].dtype
            if str(got.dtype) != f"torch.{dtype}" or got.shape != shape:
                verdict.wrong.append(
                    f"{name}: found {got.dtype} {list(got.shape)}, wanted {dtype} {list(shape)}"
                )
                continue
            wrong, judged = judge(got, want, dtype, shape)
            verdict.judged += int(judged.sum())
            verdict.open += int((~judged).sum())
            if wrong.any():
                at = tuple(wrong.nonzero()[0].tolist())
                base = (
                    want[0].expand(shape)[at]
                    if want[0].ndim == len(shape)
                    else want[0][..., 0].expand(shape)[at]
                )
                verdict.wrong.append(
                    f"{name}{list(at)}: found {got[at].item()!r}, wanted {base.item()!r} ({dtype})"
                )
        if not verdict.wrong:
            break
    return verdict


def check_gradients(program, device="cpu", results=None):
    """Compares the gradients of a formula with those of torch's autograd. Returns a Verdict."""
    verdict = Verdict()
    results = results or program.leaves()
    results = [x for x in results if is_float(program.values[x].dtype)]
    if not results:
        return verdict
    data = {x.name: x.data().detach().requires_grad_() for x in program.inputs}
    try:
        found, tensors = compute(program, results, device, data)
        shapes, _ = program.shapes(results, tensors)
        weights = torch.Generator().manual_seed(program.seed)
        weights = [torch.randn(s, generator=weights, dtype=torch.float64) for s in shapes]
        own = [data[x.name] for x in tensors]
        got = torch.autograd.grad(found, own, weights, allow_unused=True)
    except Exception as error:
        verdict.wrong.append(f"{type(error).__name__}: {error}")
        return verdict
    for runs in (3, 40):
        verdict = Verdict()
        all_runs = []
        for run in range(runs + 1):
            noise = Noisy(program.seed + run, 0, only_noise=run > 0, gradients=True)
            wanted = program.reference(results, tensors, noise, data)
            wanted = [
                w[0][..., 0].expand(s) if w[0].ndim > len(s) else w[0].expand(s)
                for w, s in zip(wanted, shapes, strict=True)
            ]
            all_runs.append(torch.autograd.grad(wanted, own, weights, allow_unused=True))
        for i, x in enumerate(tensors):
            if got[i] is None or all_runs[0][i] is None:
                continue
            want = torch.stack([run[i] for run in all_runs])
            finite = want.isfinite().all(0)
            spread = (want - want[0]).abs().amax(0)
            steady = finite & (spread <= want[0].abs() * 1e-3 + 1e-9)
            allowed = spread * 16 + want[0].abs() * 1e-12
            allowed += want[0].abs()[finite].max() * 1e-13 if finite.any() else 0
            wrong = steady & ~((got[i] - want[0]).abs() <= allowed)
            verdict.judged += int(steady.sum())
            verdict.open += int((~steady).sum())
            if wrong.any():
                at = tuple(wrong.nonzero()[0].tolist())
                verdict.wrong.append(
                    f"gradient of {x.name}{list(at)}: found {got[i][at].item()!r}, "
                    f"wanted {want[0][at].item()!r}"
                )
        if not verdict.wrong:
            break
    return verdict


def shrink(program, device, how):
    """Returns the results of the smallest part of the formula that is wrong."""
    names = [x.name for x in program.values.values() if x.code]
    for name in sorted(names, key=lambda x: len(program.cone([x]))):
        if program.has_tensors([name]) and how(program, device, [name]).wrong:
            return [name]
    return program.leaves()


def report(program, device, how):
    """Returns what a person needs to know of a wrong formula."""
    results = shrink(program, device, how)
    text, schema, tensors = program.write(results)
    wrong = how(program, device, results).wrong or how(program, device).wrong
    arrays = [f"  {x.name}: {x.describe()}" for x in tensors]
    again = f"random_formulas.py --seed {program.seed} --count 1 --device {device}"
    again += " --gradients" if program.gradients else ""
    return "\n".join(
        [
            f"seed {program.seed}:",
            *wrong,
            schema,
            text,
            *arrays,
            f"  numbers: {program.scalars}",
            f"again: {again} --only {','.join(results)}",
        ]
    )


@dataclasses.dataclass
class Counts:
    formulas: int = 0  # with an element that was judged
    judged: int = 0  # elements
    open: int = 0  # elements that depend on how intermediates are rounded
    wrong: list = dataclasses.field(default_factory=list)  # seeds


def run(seeds, device="cpu", gradients=False, only=None, show=print):
    """Checks the formulas of these seeds, and calls show(text) for each wrong one. Returns
    Counts."""
    how = check_gradients if gradients else check
    counts = Counts()
    for seed in seeds:
        program = Program(seed, gradients)
        verdict = how(program, device, only)
        counts.formulas += verdict.judged > 0
        counts.judged += verdict.judged
        counts.open += verdict.open
        if verdict.wrong:
            counts.wrong.append(seed)
            show(report(program, device, how) + "\n")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--text", action="store_true", help="only print the formulas")
    args = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(args.seed, args.seed + args.count)
    if args.text:
        for seed in seeds:
            program = Program(seed, args.gradients)
            print(seed, *program.write(args.only or program.leaves())[:2], sep="\n")
        return 0
    found = run(seeds, args.device, args.gradients, args.only)
    print(
        f"{args.count} formulas, {found.formulas} judged: {found.judged} elements judged, "
        f"{found.open} not; {len(found.wrong)} wrong: {found.wrong[:50]}"
    )
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
