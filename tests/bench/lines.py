# SPDX-License-Identifier: Apache-2.0
"""Draws panels of lines over row lengths, a row of panels for each op, as SVG text."""

import math
from xml.sax.saxutils import escape

from chart import GRID, OWN, TEXT

PANEL, HEIGHT, LEFT, GAP, TOP, ROW = 262, 130, 46, 26, 88, 178
MAX_SHARE = 1.1  # a panel's upper end, as a multiple of the copy's rate
COLOURS = {
    "opdock": OWN,
    "torch": "#c2571a",
    "torch.compile": "#3b6fb6",
    "torch.compile max": "#17a2b8",
    "Liger": "#8a5fb0",
    "quack": "#b8860b",
    "FlashInfer": "#c0392b",
    "DeepSpeed": "#5f6b76",
}


def text(x, y, what, **more):
    """Returns one line of SVG text. more: attributes, with _ for -."""
    attributes = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(what)}</text>'


def tick_text(length):
    """Formats a power of two as briefly as possible."""
    return f"{length // 1024}K" if length >= 1024 else str(length)


def panel(left, top, lines, ticks):
    """Returns one panel. lines: {who: [(row length, share of the copy)]}, in order; ticks: row
    lengths."""
    low, high = math.log2(ticks[0]), math.log2(ticks[-1])

    def x(length):
        return left + PANEL * (math.log2(length) - low) / (high - low)

    def y(share):
        return top + HEIGHT * (1 - min(share, MAX_SHARE) / MAX_SHARE)

    body = []
    for share in (0, 0.25, 0.5, 0.75, 1.0):
        colour = TEXT if share == 1 else GRID
        body.append(
            f'<line x1="{left}" x2="{left + PANEL}" y1="{y(share):.1f}" y2="{y(share):.1f}" '
            f'stroke="{colour}"/>'
        )
        body.append(text(left - 5, y(share) + 4, f"{share:.0%}", text_anchor="end", fill="#6a737d"))
    for tick in ticks:
        body.append(
            text(x(tick), top + HEIGHT + 14, tick_text(tick), text_anchor="middle", fill="#6a737d")
        )
    for who in reversed(COLOURS):  # Opdock's line is drawn last, above the others
        points = [(x(length), y(share)) for length, share in lines.get(who, ())]
        if not points:
            continue
        own = who == "opdock"
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        body.append(
            f'<polyline points="{path}" fill="none" stroke="{COLOURS[who]}" '
            f'stroke-width="{2.4 if own else 1.3}"/>'
        )
        for a, b in points:
            radius = 3.2 if own else 2.2
            body.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius}" fill="{COLOURS[who]}"/>')
    return body


def ticks_for(lengths):
    """Returns every second power of two in the range of these lengths."""
    first = math.floor(math.log2(min(lengths)))
    last = max(math.ceil(math.log2(max(lengths))), first + 2)
    return [2**power for power in range(first, last + 2, 2)]


def chart(title, columns, rows):
    """Returns SVG text: a row of panels for each op, a column for each dtype.

    rows: {op: {dtype: {who: [(row length, share of the copy), …]}}}, each list in ascending order.
    """
    width = LEFT + len(columns) * (PANEL + LEFT + GAP)
    height = TOP + len(rows) * ROW
    every = [point for op in rows.values() for lines in op.values() for point in lines.items()]
    ticks = ticks_for([length for _, points in every for length, _ in points])
    present = [who for who in COLOURS if any(who == name for name, _ in every)]
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="{TEXT}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        text(16, 22, title, font_size=15),
    ]
    at = 16
    for who in present:
        name = "Opdock" if who == "opdock" else who
        body.append(f'<rect x="{at}" y="35" width="14" height="4" fill="{COLOURS[who]}"/>')
        body.append(text(at + 19, 41, name))
        at += 42 + 7 * len(name)
    for number, (op, panels) in enumerate(rows.items()):
        top = TOP + number * ROW
        for column, dtype in enumerate(columns):
            left = LEFT + column * (PANEL + LEFT + GAP)
            body.append(text(left, top - 10, f"{op}, {dtype}"))
            body += panel(left, top, panels.get(dtype, {}), ticks)
    return "\n".join([*body, "</svg>"]) + "\n"
