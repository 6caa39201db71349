# SPDX-License-Identifier: Apache-2.0
"""Whether another way is faster than a plugin's own, by more than the noise."""

import math
import statistics

OWN = -1  # the plugin's own choice
#: Less is not worth a difference between machines.
LEAST_GAIN = 0.01


def scores(situations):
    """{way: [a number for each round]}: the geometric mean, over the situations, of the way's time
    by the median time of the plugin's own. situations: [{way: [time in each round]}], each with
    OWN; ways that not all have are left out."""
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
    """The fastest way, or OWN unless its slower quarter of rounds is still faster than the faster
    quarter of the plugin's own, and it gains LEAST_GAIN."""
    found = scores(situations)
    best = min(found, key=lambda way: statistics.median(found[way]))
    if best == OWN or statistics.median(found[best]) > 1 - LEAST_GAIN:
        return OWN
    slow = statistics.quantiles(found[best], n=4)[2]
    return best if slow < statistics.quantiles(found[OWN], n=4)[0] else OWN
