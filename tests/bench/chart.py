# SPDX-License-Identifier: Apache-2.0
"""A bar chart of Opdock beside its peers, as SVG text."""

import math
from xml.sax.saxutils import escape

WIDTH, BAR, GAP, LEFT, RIGHT, TOP = 860, 15, 10, 390, 70, 54
OWN, PEER, GRID, TEXT = "#2f6f4f", "#9aa5b1", "#d5dade", "#24292f"


def bars(title, comparisons):
    """SVG text: one group of bars for each comparison.

    comparisons: [(what, {name: time, …})], Opdock's time first, of one unit within a comparison.
    A bar's length is the time divided by Opdock's, on a logarithmic axis: a peer's bar to the right
    of 1 means that Opdock is faster.
    """
    ratios = [t / next(iter(times.values())) for _, times in comparisons for t in times.values()]
    low = min(0.5, 2.0 ** math.floor(math.log2(min(ratios))))
    high = max(2.0, max(ratios) * 1.2)

    def x(ratio):
        share = math.log(ratio / low) / math.log(high / low)
        return LEFT + (WIDTH - LEFT - RIGHT) * share

    body, y = [], TOP
    for what, times in comparisons:
        own = next(iter(times.values()))
        for number, (name, time) in enumerate(times.items()):
            label = f"{what}: {name}" if number == 0 else name
            ratio = time / own
            begin, end = sorted((x(1.0), x(ratio)))
            color = OWN if number == 0 else PEER
            mark = x(1.0) - 3 if number == 0 else begin
            body += [
                f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(label)}</text>',
                f'<rect x="{mark:.1f}" y="{y}" width="{max(end - begin, 6):.1f}" height="{BAR}" '
                f'fill="{color}"/>',
                f'<text x="{max(end, mark + 6) + 5:.1f}" y="{y + 12}">{ratio:.2g}</text>',
            ]
            y += BAR + 3
        y += GAP
    ticks = [10.0**power for power in range(math.ceil(math.log10(low)), 6) if 10.0**power <= high]
    grid = []
    for tick in ticks:
        color = TEXT if tick == 1 else GRID
        grid += [
            f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP - 6}" y2="{y}" '
            f'stroke="{color}"/>',
            f'<text x="{x(tick):.1f}" y="{y + 14}" text-anchor="middle">{tick:g}×</text>',
        ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 24}" '
        f'font-family="sans-serif" font-size="12" fill="{TEXT}">'
    )
    lines = [head, f'<rect width="{WIDTH}" height="{y + 24}" fill="white"/>']
    lines.append(f'<text x="16" y="22" font-size="15">{escape(title)}</text>')
    lines.append('<text x="16" y="40">time divided by Opdock\'s; logarithmic axis</text>')
    return "\n".join([*lines, *grid, *body, "</svg>"]) + "\n"
