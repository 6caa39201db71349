# SPDX-License-Identifier: Apache-2.0
"""Summarises the records: how the fastest peer of each case compares with Opdock, and the worst
case, for each op and each other thing that is measured next to peers."""

import statistics
from collections import Counter
from typing import NamedTuple

# Single figures: (what, bench, member, {who: row's name}), Opdock first. Arrays are the same on
# both sides.
NOOP, COMPILE = ("python_noop", "median_ns"), ("compile", "median_ms")
LAUNCH = ("compile", "median_us")
SINGLE = [
    ("no-op call from Python, torch tensor", *NOOP, {
        "opdock": "opdock noop, torch",
        "tvm-ffi": "tvm-ffi noop, torch",
        "pybind11 extension": "pybind11 extension noop, torch",
    }),
    ("no-op call from Python, NumPy array", *NOOP, {
        "opdock": "opdock noop, NumPy",
        "tvm-ffi": "tvm-ffi noop, NumPy",
    }),
    ("softmax of 4x8 with a fresh result", *NOOP, {
        "opdock": "opdock softmax 4x8 with a fresh result, torch",
        "torch": "torch.softmax 4x8",
    }),
    ("launch of a CUDA kernel from Python, torch tensors", *LAUNCH, {
        "opdock": "opdock kernel, launch",
        "torch": "torch.cuda._compile_kernel, launch",
    }),
    ("launch of a CUDA kernel from Python, CuPy arrays", *LAUNCH, {
        "opdock": "opdock kernel, CuPy arrays, launch",
        "CuPy": "cupy.RawKernel, launch",
    }),
    ("compiling a second CUDA kernel", *COMPILE, {
        "opdock": "opdock.compile, second",
        "CuPy": "cupy.RawKernel, second",
        "torch": "torch.cuda._compile_kernel, second",
    }),
    ("first use of a C++ op that is source", "first_use", "median_ms", {
        "opdock": "opdock source plugin, first use",
        "tvm-ffi": "tvm-ffi load_inline, first use",
        "torch": "torch cpp_extension.load_inline, first use",
    }),
]  # fmt: skip
UNITS = {"median_ns": "ns", "median_us": "µs", "median_ms": "ms"}

# A number in proportion to a row's time, for benches with rows of peers; gpu_times() handles
# gpu_ops.
TIMES = {
    "small_launches": lambda row: row["event_us"],
    "gemm": lambda row: row["us"],
    "inference": lambda row: row.get("us"),
    "demo_encoder": lambda row: row["median_ms"],
    "gpt2_decode": lambda row: 1 / row["tokens_per_s"],
    "formulas": lambda row: row.get("us") or row.get("ms"),
}


class Case(NamedTuple):
    """One case of a group: its name, and times as {who: a number in proportion to the time}."""

    name: str
    times: dict

    @property
    def fastest(self):
        """The fastest peer's name."""
        return min((who for who in self.times if who != "opdock"), key=self.times.get)

    @property
    def ratio(self):
        """The fastest peer's time divided by Opdock's."""
        return self.times[self.fastest] / self.times["opdock"]


def singles(rows):
    """Returns [(what, member, {who: value})] of the SINGLE figures for which Opdock and a peer were
    measured in one run."""
    named, found = {}, []
    for row in rows:
        named[row["bench"], row["name"]] = row
    for what, bench, member, names in SINGLE:
        measured = {who: named.get((bench, name), {}) for who, name in names.items()}
        run = measured["opdock"].get("where")
        values = {
            who: row[member]
            for who, row in measured.items()
            if member in row and row["where"] is run
        }
        if "opdock" in values and len(values) > 1:
            found.append((what, member, values))
    return found


def group_of(bench, name):
    """Returns (the group, the case's name in it) of a row of gpu_ops or of a bench in TIMES."""
    words = name.split()
    if bench == "gpu_ops":
        op, shape, *more, dtype = words
        return " ".join([op, *more]), f"{shape} {dtype}"
    if bench == "small_launches":
        return f"{words[0]}, a small launch", " ".join(words[1:])
    if bench == "gemm":
        at = next(i for i, word in enumerate(words) if word.count("x") == 2)
        what = f"{' '.join(words[:at])}, {' '.join(words[at + 1 :])}"
        return what if words[0] == "linear" else f"product {what}", words[at]
    if bench == "inference":
        return f"DeepSpeed's functions, {words[-1]}", " ".join(words[:-1])
    if bench == "formulas":
        case, _, what = name.partition(", ")
        if what.endswith(("thread", "threads")):
            return f"formulas on the CPU, {what}", case
        return (f"formulas, {what}", case) if what else (f"formula {words[0]}", " ".join(words[1:]))
    return name, ""


def gpu_times(rows):
    """Returns {name: {who: row and its time}} of gpu_ops. The copy's time in the same run is 1, so
    that peers measured in another run than Opdock are comparable."""
    copies, found = {}, {}
    for row in rows:
        op, case = row["name"].split(" ", 1)
        if op == "copy":
            copies[case, id(row["where"])] = row["gb_per_s"]
            continue
        copy = copies.get((case, id(row["where"])))
        # A peer twice as fast as a copy has done no work, like DeepSpeed's norms of 32768 columns.
        if copy is not None and row["gb_per_s"] < 2 * copy:
            found.setdefault(row["name"], {})[row["peer"]] = (row, copy / row["gb_per_s"])
    return found


def other_times(rows, bench):
    """Returns the same for another bench, whose peers count only if they were measured in Opdock's
    run."""
    found = {}
    for row in rows:
        time = TIMES[bench](row)
        if time is not None:
            found.setdefault(row["name"], {})[row["peer"]] = (row, time)
    for name, of in found.items():
        run = of["opdock"][0]["where"] if "opdock" in of else None
        found[name] = {who: pair for who, pair in of.items() if pair[0]["where"] is run}
    return found


def groups(rows):
    """Returns {what: [Case, …]} of all benches, for cases in which Opdock and a peer were
    measured."""
    found = {}

    def add(what, case):
        found.setdefault(what, []).append(case)

    for bench in ("gpu_ops", *TIMES):
        own = [row for row in rows if row["bench"] == bench]
        if bench in TIMES:
            of_bench = other_times(own, bench).items()
        else:
            of_bench = sorted(gpu_times(own).items())
        for name, of in of_bench:
            if "opdock" not in of or len(of) == 1:
                continue
            what, case = group_of(bench, name)
            if any(row.get("right") is False for who, (row, _) in of.items() if who != "opdock"):
                what += ", its results wrong"
            add(what, Case(case, {who: time for who, (_, time) in of.items()}))
    for row in rows:
        if row["bench"] == "cpu_ops":
            case, _, threads = row["name"].rpartition(", ")
            times = {"opdock": row["opdock_us"], "torch": row["torch_us"]}
            add(f"ops on the CPU, {threads}", Case(case, times))
    return found


def apart(rows):
    """Returns how many cases of gpu_ops have a peer that was measured in another run than
    Opdock."""
    own = [row for row in rows if row["bench"] == "gpu_ops"]
    return sum(
        len({id(row["where"]) for row, _ in of.values()}) > 1
        for of in gpu_times(own).values()
        if "opdock" in of
    )


def worst_text(cases):
    """Describes the worst of several cases: "0.95 (torch.compile, 65536x1024 float32)"."""
    worst = min(cases, key=lambda case: case.ratio)
    where = ", ".join(filter(None, [worst.fastest, worst.name]))
    return f"{worst.ratio:.2f} ({where})"


def single_table(found):
    """Returns lines of Markdown on singles()."""
    if not found:
        return []
    text = ["| | Opdock | peers, and their time divided by Opdock's |", "|---|---|---|"]
    for what, member, values in found:
        shown = {w: f"{v:,.{0 if v >= 100 else 1}f} {UNITS[member]}" for w, v in values.items()}
        peers = [
            f"{who} {shown[who]} ({values[who] / values['opdock']:.2f}×)"
            for who in list(values)[1:]
        ]
        text.append(f"| {what} | {shown['opdock']} | {', '.join(peers)} |")
    return [*text, ""]


def group_table(found):
    """Returns lines of Markdown on groups()."""
    if not found:
        return []
    text = ["| | cases | the fastest peer, in how many | median | worst |", "|---|---|---|---|---|"]
    for what, cases in found.items():
        who = Counter(case.fastest for case in cases).most_common()
        peers = ", ".join(f"{name} {count}" for name, count in who)
        median = statistics.median(case.ratio for case in cases)
        text.append(f"| {what} | {len(cases)} | {peers} | {median:.2f} | {worst_text(cases)} |")
    return [*text, ""]


def measured(rows):
    """Returns when and at which commits the rows were measured."""
    dates = sorted({row["where"]["date"] for row in rows})
    commits = list(dict.fromkeys(row["where"]["commit"][:12] for row in rows))
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"{when}, commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}"


def ranges(rows):
    """Returns [(what, least, median, most, text), …] for the chart: all singles and groups."""
    found = []
    for what, _, values in singles(rows):
        case = Case("", values)
        found.append((what, *[case.ratio] * 3, f"{case.ratio:.2f} {case.fastest}"))
    for what, cases in groups(rows).items():
        each = [case.ratio for case in cases]
        text = f"{statistics.median(each):.2f}, worst {worst_text(cases)}"
        if len(cases) == 1:
            text = f"{each[0]:.2f} {cases[0].fastest}"
        found.append((what, min(each), statistics.median(each), max(each), text))
    return found
