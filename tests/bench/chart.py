# SPDX-License-Identifier: Apache-2.0
"""Draws a chart of Opdock compared with the fastest peers, as SVG text."""

import math
from xml.sax.saxutils import escape

WIDTH, ROW, LEFT, PLOT, TOP = 1100, 19, 330, 320, 54
OWN, BEHIND, GRID, TEXT = "#2f6f4f", "#c2571a", "#d5dade", "#24292f"


def ranges(title, rows):
    """Returns SVG text with a line for each row, from the least to the most, with a mark at the
    median.

    rows: [(what, least, median, most, text)], ratios: a peer's time divided by Opdock's. The axis
    is logarithmic. The part left of 1, where the peer is faster, has another colour."""
    low = min(0.5, *(least for _, least, *_ in rows))
    high = max(2.0, *(most for _, _, _, most, _ in rows))

    def x(ratio):
        return LEFT + PLOT * math.log(ratio / low) / math.log(high / low)

    def bar(begin, end, y, colour):
        return (
            f'<rect x="{x(begin) - 1:.1f}" y="{y}" width="{x(end) - x(begin) + 2:.1f}" height="7" '
            f'fill="{colour}"/>'
        )

    body = []
    for number, (what, least, median, most, text) in enumerate(rows):
        y = TOP + number * ROW
        body.append(f'<text x="{LEFT - 8}" y="{y + 11}" text-anchor="end">{escape(what)}</text>')
        if most >= 1:
            body.append(bar(max(least, 1), most, y + 4, OWN))
        if least < 1:
            body.append(bar(least, min(most, 1), y + 4, BEHIND))
        body.append(
            f'<rect x="{x(median) - 1.5:.1f}" y="{y + 1}" width="3" height="13" fill="{TEXT}"/>'
        )
        body.append(f'<text x="{LEFT + PLOT + 12}" y="{y + 11}">{escape(text)}</text>')
    bottom = TOP + len(rows) * ROW
    grid = []
    for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50):
        if low <= tick <= high:
            grid += [
                f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP - 6}" y2="{bottom}" '
                f'stroke="{TEXT if tick == 1 else GRID}"/>',
                f'<text x="{x(tick):.1f}" y="{bottom + 14}" text-anchor="middle">{tick:g}×</text>',
            ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + 24}" '
        f'font-family="sans-serif" font-size="12" fill="{TEXT}">'
    )
    about = "the fastest peer's time divided by Opdock's: median of the cases, and from the worst "
    about += "to the best; logarithmic axis"
    lines = [head, f'<rect width="{WIDTH}" height="{bottom + 24}" fill="white"/>']
    lines.append(f'<text x="16" y="22" font-size="15">{escape(title)}</text>')
    lines.append(f'<text x="16" y="40">{escape(about)}</text>')
    return "\n".join([*lines, *grid, *body, "</svg>"]) + "\n"
