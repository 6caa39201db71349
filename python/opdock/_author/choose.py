# SPDX-License-Identifier: Apache-2.0
"""Decides whether another launch choice is faster than the plugin's own by more than the noise."""

import math
import statistics

OWN = -1  # the plugin's own choice
#: Smallest gain worth storing: a smaller one does not justify different choices on machines.
MIN_GAIN = 0.01


def scores(situations):
    """Returns {choice: [a number for each round]}: the geometric mean, over the situations, of the
    choice's time divided by the median time of the plugin's own choice.

    situations: [{choice: [time in each round]}], each with OWN. Choices that some situation lacks
    are left out.
    """
    ways = set.intersection(*(set(times) for times in situations))
    owns = [statistics.median(times[OWN]) for times in situations]
    return {
        way: [
            math.exp(statistics.fmean(math.log(t / own) for t, own in zip(row, owns, strict=True)))
            for row in zip(*(times[way] for times in situations), strict=True)
        ]
        for way in sorted(ways)
    }


def choose(situations):
    """Returns the fastest choice, or OWN.

    The fastest one is returned only if its third quartile over the rounds is below the first
    quartile of the plugin's own choice, and it gains at least MIN_GAIN.
    """
    found = scores(situations)
    best = min(found, key=lambda way: statistics.median(found[way]))
    if best == OWN or statistics.median(found[best]) > 1 - MIN_GAIN:
        return OWN
    slow = statistics.quantiles(found[best], n=4)[2]
    return best if slow < statistics.quantiles(found[OWN], n=4)[0] else OWN
