# SPDX-License-Identifier: Apache-2.0
"""Writes what docs/reference/deepspeed.md says of inference.py's records: Opdock's times compared
with DeepSpeed's.

Every call that was timed in both counts. Calls in which DeepSpeed's results are outside of its own
tests' tolerances have rows of their own, with the known reason."""

import re
import textwrap
from collections import Counter
from typing import NamedTuple

WITHIN = "within DeepSpeed's tolerances"
PRODUCTS = {"vector_matmul", "linear_layer", "linear_layer by head", "qkv_gemm", "rms_qkv_gemm"}
PRODUCTS |= {"mlp_gemm", "rms_mlp_gemm", "fused_gemm_gelu", "einsum_sec_sm_ecm"}
ATTENTION = {"softmax_context", "softmax_context rotary"}
#: why DeepSpeed's results are outside the tolerances: (the functions, their dtypes or None for all,
#: the text)
EXCUSES = [
    (PRODUCTS, {"fp32"}, "products of float32, rounded to TF32"),
    (ATTENTION, {"fp32"}, "attention of float32, its products in TF32"),
    ({"bias_residual"}, None, "`bias_residual`, which returns its input"),
    ({"add_padding", "pad_transform"}, {"fp32"}, "padding of float32, by empty kernels"),
    ({"apply_rotary_pos_emb"}, None, "`apply_rotary_pos_emb`, of other memory"),
    ({"vector_matmul int8"}, {"fp32"}, "`vector_matmul int8` in fp32"),
    ({"dequantize"}, {"fp32", "bf16"}, "`dequantize`, float16 under every name"),
]
SLOWER = 1.02  # a higher ratio is called slower, since it exceeds the timer's noise


class Pair(NamedTuple):
    """A call that was timed in both. ratio: Opdock's time divided by DeepSpeed's."""

    name: str
    ratio: float
    theirs: dict

    @property
    def function(self):
        return self.name.rsplit(" ", 2)[0]

    @property
    def dtype(self):
        return self.name.rsplit(" ", 1)[1]


def pairs(rows):
    """Returns the pairs of each call's newest run, in the order of the records."""
    found = {}
    for row in rows:
        found.setdefault(row["name"], {})[row["peer"]] = row
    return [
        Pair(name, both["opdock"]["us"] / both["DeepSpeed"]["us"], both["DeepSpeed"])
        for name, both in found.items()
        if all("us" in both.get(whose, {}) for whose in ("opdock", "DeepSpeed"))
    ]


def group(pair):
    """Returns the row of the table that a call belongs to."""
    if pair.theirs["right"]:
        return WITHIN
    for functions, dtypes, text in EXCUSES:
        if pair.function in functions and (dtypes is None or pair.dtype in dtypes):
            return text
    return f"`{pair.function}` in {pair.dtype}"


def _elements(of):
    """Returns the share of elements outside the tolerance, as "20.2%–42.5%"; "" if no record has
    it."""
    texts = [pair.theirs.get("found", "") for pair in of]
    shares = [float(s) for text in texts for s in re.findall(r"([\d.]+)% of the elements", text)]
    low, high = f"{min(shares, default=0)}%", f"{max(shares, default=0)}%"
    return "" if not shares else low if low == high else f"{low}–{high}"


def counts(of):
    """Returns [calls, slower, by more than 2%, the worst one] as texts."""
    worst = max(of, key=lambda pair: pair.ratio)
    slower = sum(pair.ratio > 1 for pair in of), sum(pair.ratio > SLOWER for pair in of)
    return [*map(str, (len(of), *slower)), f"{worst.ratio:.2f} (`{worst.name}`)"]


def table(of):
    """Returns lines of Markdown: a row for each group and one for all, in which TF32's do not
    count."""
    text = ["| DeepSpeed's results | outside | calls | slower | by more than 2% | worst |"]
    text.append("|" + "---|" * 6)
    plain = [pair for pair in of if pair.dtype != "tf32"]
    groups = {}
    for pair in sorted(plain, key=lambda pair: not pair.theirs["right"]):
        groups.setdefault(group(pair), []).append(pair)
    groups["**all**"] = plain
    if rounded := [pair for pair in of if pair.dtype == "tf32"]:
        groups["in addition: rounded to TF32 in both"] = rounded
    for what, some in groups.items():
        cells = [what, _elements(some) if what not in (WITHIN, "**all**") else "", *counts(some)]
        text.append("| " + " | ".join(cells) + " |")
    return text


def behind(of):
    """Returns the sentence on calls with right results that take more than 2% longer, or ""."""
    slow = [pair for pair in of if pair.theirs["right"] and pair.ratio > SLOWER]
    if not slow:
        return ""
    each = Counter(pair.function for pair in slow).most_common()
    names = ", ".join(f"`{name}` ({count})" for name, count in each)
    ratios = [pair.ratio for pair in slow]
    return (
        f"With right results in both, {len(slow)} calls take more than 2% longer than DeepSpeed's, "
        f"{min(ratios):.2f} to {max(ratios):.2f} times as long: {names}."
    )


def ranges(of):
    """Returns the sentence on the ratios of the functions that are furthest ahead in 16 bits."""
    functions = {}
    for pair in of:
        if pair.theirs["right"] and pair.dtype in ("fp16", "bf16"):
            functions.setdefault(pair.function, []).append(pair.ratio)
    medians = sorted(functions, key=lambda name: sorted(functions[name])[len(functions[name]) // 2])
    found = [f"`{n}` {min(functions[n]):.2f} to {max(functions[n]):.2f}" for n in medians[:5]]
    return (
        f"The five fastest in 16-bit dtypes, by the share of DeepSpeed's time: {', '.join(found)}."
    )


def made(rows):
    """Returns Markdown on the newest of a card's results of inference.py; None if there are
    none."""
    rows = [row for row in rows if row["bench"] == "inference"]
    of = pairs(rows)
    if not of:
        return None
    where = rows[-1]["where"]
    commits = list(dict.fromkeys(row["where"]["commit"][:12] for row in rows))
    about = (
        f"On an {where['gpu']}, DeepSpeed {where['versions']['deepspeed']}, torch "
        f"{where['versions']['torch']} ({where['date']}, {', '.join(commits)})."
    )
    paragraph = " ".join(filter(None, [about, ranges(of), behind(of)]))
    return "\n".join([textwrap.fill(paragraph, 110, break_on_hyphens=False), "", *table(of), ""])
