# SPDX-License-Identifier: Apache-2.0
"""Which of the bars of formulas.py hold, by the rows that it records."""

from collections import defaultdict

WITHIN = 1.01  # of the best peer's time, on a GPU
COMPILER_OPEN_MS, WARM_MS = 100, 3
SOONER, HOST = 10, 0.25  # compared with torch.compile
# Rows that are about one chain, whatever its shape: "rms_norm, first result".
FIRST, OPEN, WARM, HOST_TIME = "first result", "compiler open", "warm start", "host time"
COMPILE = "torch.compile"


def is_time(name):
    """Returns whether a row of this name has the time of a case: "rms_norm 8192x8192 float16"."""
    return ", " not in name or name.endswith((" thread", " threads"))


def by_name(rows):
    """Returns {name: {peer: time}} of the rows that have one."""
    found = defaultdict(dict)
    for row in rows:
        for unit in ("us", "ms"):
            if unit in row:
                found[row["name"]][row["peer"]] = row[unit]
    return found


def of_kind(times, kind):
    """Returns {chain: {peer: time}} of one kind of row."""
    ending = f", {kind}"
    return {n.removesuffix(ending): of for n, of in times.items() if n.endswith(ending)}


def cases_of(times, peers=None):
    """Returns [(the best peer's time divided by Opdock's, its name, the case), …], the worst case
    first. peers: those that count; None: all."""
    found = []
    for name, of in times.items():
        others = {p: t for p, t in of.items() if p != "opdock" and (not peers or p in peers)}
        if is_time(name) and "opdock" in of and others:
            best = min(others, key=others.get)
            found.append((others[best] / of["opdock"], best, name))
    return sorted(found)


def verdict(text, holds, worst):
    return f"  bar {'holds' if holds else 'DOES NOT HOLD'}: {text}; worst: {worst}"


def of_times(times, device):
    """Returns the lines on the time of a call."""
    cases = cases_of(times, (COMPILE, "numexpr") if device == "cpu" else None)
    if not cases:
        return ["  bar not measured: the time of a call"]
    ratio, best, name = cases[0]
    worst = f"{1 / ratio:.3f} of {best}'s time, {name}"
    ahead = sum(ratio > 1 for ratio, _, _ in cases)
    if device == "cpu":
        text = f"ahead of inductor and numexpr on each chain: {ahead} of {len(cases)} cases"
        return [verdict(text, ahead == len(cases), worst)]
    within = sum(1 / ratio <= WITHIN for ratio, _, _ in cases)
    text = f"within {WITHIN - 1:.0%} of the best peer's time: {within} of {len(cases)} cases"
    most = f"ahead of the best peer on most cases: {ahead} of {len(cases)}"
    return [
        verdict(text, within == len(cases), worst),
        verdict(most, 2 * ahead > len(cases), worst),
    ]


def compared(times, kind, text, most):
    """Returns the line on Opdock's time divided by torch.compile's, which is `most` at most."""
    found = {c: of for c, of in of_kind(times, kind).items() if {"opdock", COMPILE} <= of.keys()}
    if not found:
        return f"  bar not measured: {text}"
    ratios = {chain: of["opdock"] / of[COMPILE] for chain, of in found.items()}
    chain = max(ratios, key=ratios.get)
    held = sum(ratio <= most for ratio in ratios.values())
    return verdict(
        f"{text}: {held} of {len(ratios)} chains",
        held == len(ratios),
        f"{ratios[chain]:.3f} of {COMPILE}'s, {chain}",
    )


def absolute(times, kind, text, most):
    """Returns the line on Opdock's own milliseconds, which are `most` at most."""
    found = {c: of["opdock"] for c, of in of_kind(times, kind).items() if "opdock" in of}
    if not found:
        return f"  bar not measured: {text}"
    chain = max(found, key=found.get)
    held = sum(ms <= most for ms in found.values())
    return verdict(
        f"{text}: {held} of {len(found)} chains",
        held == len(found),
        f"{found[chain]:.2f} ms, {chain}",
    )


def lines(rows, device):
    """Returns a line for each bar: whether it holds, in how many cases, and the worst one. On the
    CPU nothing is compiled, cached or launched."""
    times = by_name(rows)
    found = of_times(times, device)
    sooner = f"first result of a cold process {SOONER} × sooner than {COMPILE}'s"
    found.append(compared(times, FIRST, sooner, 1 / SOONER))
    if device == "cuda":
        text = f"first result within {COMPILER_OPEN_MS} ms, the compiler being open"
        found.append(absolute(times, OPEN, text, COMPILER_OPEN_MS))
        text = f"first result within {WARM_MS} ms, from the cache"
        found.append(absolute(times, WARM, text, WARM_MS))
        text = f"host time of a call at most {HOST} × {COMPILE}'s"
        found.append(compared(times, HOST_TIME, text, HOST))
    return found
