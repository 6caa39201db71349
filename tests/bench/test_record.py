# SPDX-License-Identifier: Apache-2.0
"""Tests the records: what is read is what was appended, with where it was measured; and what the
pages show."""

import re

import bare
import inference_page
import pytest
import record
import summary
import table
import timing

WHERE = {"gpu": "a GPU", "cpu": "a", "cores": 2, "python": "3", "date": "2026-11-30"}
WHERE |= {"driver": "1", "versions": {"deepspeed": "0", "torch": "2"}}


def recorded(card, monkeypatch, commit, bench, *rows, date=WHERE["date"]):
    monkeypatch.setattr(record, "environment", lambda: WHERE | {"commit": commit, "date": date})
    record.append(card, bench, rows)


def gpu_row(name, peer, rate):
    return {"name": name, "peer": peer, "gb_per_s": rate}


def test_each_result_is_read_with_where_it_was_measured(tmp_path, monkeypatch):
    recorded(tmp_path, monkeypatch, "one", "ops", {"name": "a"}, {"name": "b", "us": 1.5})
    recorded(tmp_path, monkeypatch, "two", "ops", {})
    assert record.read(tmp_path) == [
        {"bench": "ops", "name": "a", "where": WHERE | {"commit": "one"}},
        {"bench": "ops", "name": "b", "us": 1.5, "where": WHERE | {"commit": "one"}},
        {"bench": "ops", "where": WHERE | {"commit": "two"}},
    ]


def test_a_result_lies_in_the_file_of_its_month_and_months_are_read_in_order(tmp_path, monkeypatch):
    card = tmp_path / "gpu"
    dates = ["2027-01-01", "2026-11-30", "2026-12-01", "2026-12-31"]
    for date in dates:
        recorded(card, monkeypatch, "one", "ops", {"name": "a"}, date=date)
    assert [row["where"]["date"] for row in record.read(card)] == sorted(dates)
    months = {file.name: file.read_text().count("where") for file in card.iterdir()}
    assert months == {"2026-11.jsonl": 1, "2026-12.jsonl": 2, "2027-01.jsonl": 1}


def test_what_a_process_appends_in_turns_is_one_run(tmp_path, monkeypatch):
    gpu, cpu = tmp_path / "gpu", tmp_path / "cpu"
    for card in (gpu, cpu, gpu):
        recorded(card, monkeypatch, "one", "ops", {"name": "a"})
    first, second = record.read(gpu)
    (file,) = gpu.iterdir()
    assert first["where"] is second["where"] and file.read_text().count("where") == 1
    record._written.clear()  # simulates another process
    recorded(gpu, monkeypatch, "one", "ops", {"name": "b"})
    record.prune(gpu)
    assert file.read_text().count("where") == 2


def test_a_case_that_has_the_copy_of_another_op_before_it_is_kept(tmp_path, monkeypatch):
    """Two ops of one shape move different numbers of bytes, and have a copy each."""
    rows = [
        gpu_row(f"{op} 8x8 x", peer, rate)
        for op, rate in (("copy", 100), ("loss", 90), ("copy", 50), ("gradient", 45))
        for peer in (["torch"] if op == "copy" else ["opdock", "torch"])
    ]
    recorded(tmp_path, monkeypatch, "one", "gpu_ops", *rows)
    text = table.tables("gpu", record.newest(record.read(tmp_path)))
    assert "| loss 8x8 x | 100 | 90.0% |" in text and "| gradient 8x8 x | 50 | 90.0% |" in text


def test_what_was_measured_again_is_dropped_but_not_the_copies_beside_the_rest(
    tmp_path, monkeypatch
):
    def append(commit, bench, *names):
        rows = [{"name": name, "peer": "opdock"} for name in names]
        recorded(tmp_path, monkeypatch, commit, bench, *rows)

    append("one", "gpu_ops", "copy 1x2", "softmax 1x2")
    append("two", "gpu_ops", "copy 1x2", "softmax 1x2", "norm 1x2")
    append("three", "gemm", "norm 1x2")
    append("four", "gpu_ops", "copy 1x2", "softmax 1x2")
    record.prune(tmp_path)
    found = [(row["where"]["commit"], row["name"]) for row in record.read(tmp_path)]
    assert found == [
        ("two", "copy 1x2"),
        ("two", "norm 1x2"),
        ("three", "norm 1x2"),
        ("four", "copy 1x2"),
        ("four", "softmax 1x2"),
    ]
    (file,) = tmp_path.iterdir()
    before = file.read_text()
    record.prune(tmp_path)
    assert file.read_text() == before


def test_another_month_replaces_a_result_on_the_pages_and_not_in_its_file(tmp_path, monkeypatch):
    rows = [gpu_row("copy 1x2", "torch", 100), gpu_row("softmax 1x2", "opdock", 40)]
    for commit, date in (("one", "2026-11-30"), ("two", "2026-12-01")):
        recorded(tmp_path, monkeypatch, commit, "gpu_ops", *rows, date=date)
    all_rows = record.read(tmp_path)
    record.prune(tmp_path)
    assert record.read(tmp_path) == all_rows
    assert record.newest(all_rows) == all_rows[2:]


def test_a_case_is_shown_beside_the_copy_of_its_own_run(tmp_path, monkeypatch):
    """This also holds where a later run has measured the copy again, for another op."""
    for commit, copy, op in (("one", 100, "softmax"), ("two", 50, "norm")):
        rates = {"copy 1x2": copy, f"{op} 1x2": 40}
        rows = [gpu_row(name, "opdock", rate) for name, rate in rates.items()]
        recorded(tmp_path, monkeypatch, commit, "gpu_ops", *rows)
    text = table.tables("gpu", record.newest(record.read(tmp_path)))
    assert "| softmax 1x2 | 100 | 40.0% |" in text
    assert "| norm 1x2 | 50 | 80.0% |" in text


def test_the_summary_has_the_fastest_peer_of_each_case_and_the_worst_case(tmp_path, monkeypatch):
    first, second = [f"{{}} {shape} float32" for shape in ("8x8", "9x9")]
    recorded(
        tmp_path, monkeypatch, "one", "gpu_ops",
        gpu_row(first.format("copy"), "torch", 100),
        gpu_row(first.format("softmax"), "opdock", 90),
        gpu_row(first.format("softmax"), "torch", 30),
        gpu_row(first.format("softmax"), "Liger", 45),
        gpu_row(second.format("copy"), "torch", 200),
        gpu_row(second.format("softmax"), "opdock", 100),
        gpu_row(second.format("softmax"), "quack", 125),
        gpu_row(second.format("softmax"), "DeepSpeed", 400),  # it did no work
    )  # fmt: skip
    found = summary.groups(record.newest(record.read(tmp_path)))
    assert {what: [(c.fastest, c.ratio) for c in cases] for what, cases in found.items()} == {
        "softmax": [("Liger", 2.0), ("quack", 0.8)]
    }
    (line,) = summary.group_table(found)[2:-1]
    assert line == "| softmax | 2 | Liger 1, quack 1 | 1.40 | 0.80 (quack, 9x9 float32) |"


def test_peers_of_another_run_count_beside_their_own_copy_or_not_at_all(tmp_path, monkeypatch):
    copy, softmax = "copy 8x8 float32", "softmax 8x8 float32"
    recorded(
        tmp_path, monkeypatch, "one", "gpu_ops", gpu_row(copy, "torch", 100),
        gpu_row(softmax, "quack", 50),
    )  # fmt: skip
    recorded(
        tmp_path, monkeypatch, "two", "gpu_ops", gpu_row(copy, "torch", 200),
        gpu_row(softmax, "opdock", 200),
    )  # fmt: skip
    for whose, us in (("torch", 1.0), ("opdock", 2.0)):
        recorded(
            tmp_path, monkeypatch, whose, "gemm", {"name": "a b 1x1x1 x", "peer": whose, "us": us}
        )
    rows = record.newest(record.read(tmp_path))
    assert [case.ratio for case in summary.groups(rows)["softmax"]] == [2.0]
    assert list(summary.groups(rows)) == ["softmax"] and summary.apart(rows) == 1


def test_launches_are_compared_with_launches_of_the_same_arrays():
    for what, _, _, names in summary.SINGLE:
        if "launch" in what:
            assert ("CuPy" in names) == ("CuPy" in what) == ("CuPy" in names["opdock"])


def call(name, whose, us, right=True, found="20.0% of the elements are wrong"):
    row = {"name": name, "peer": whose, "us": us, "right": right}
    return row if right else row | {"found": found}


def test_every_call_beside_deepspeed_counts(tmp_path, monkeypatch):
    recorded(
        tmp_path, monkeypatch, "one", "inference",
        call("softmax 1x1 fp16", "opdock", 1.0), call("softmax 1x1 fp16", "DeepSpeed", 2.0),
        call("rms_norm 1x1 fp16", "opdock", 1.05), call("rms_norm 1x1 fp16", "DeepSpeed", 1.0),
        call("rms_norm 1x2 fp16", "opdock", 1.01), call("rms_norm 1x2 fp16", "DeepSpeed", 1.0),
        call("mlp_gemm 1x1 fp32", "opdock", 7.0),
        call("mlp_gemm 1x1 fp32", "DeepSpeed", 1.0, False),
        call("mlp_gemm 1x1 tf32", "opdock", 1.0), call("mlp_gemm 1x1 tf32", "DeepSpeed", 1.1),
        call("bias_add 1x1 fp32", "opdock", 1.0),
    )  # fmt: skip
    text = inference_page.made(record.newest(record.read(tmp_path)))
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines] == [
        [inference_page.WITHIN, "", "3", "2", "1", "1.05 (`rms_norm 1x1 fp16`)"],
        [
            "products of float32, rounded to TF32", "20.0%", "1", "1", "1",
            "7.00 (`mlp_gemm 1x1 fp32`)",
        ],
        ["**all**", "", "4", "3", "2", "7.00 (`mlp_gemm 1x1 fp32`)"],
        [
            "in addition: rounded to TF32 in both", "", "1", "0", "0",
            "0.91 (`mlp_gemm 1x1 tf32`)",
        ],
    ]  # fmt: skip
    assert (
        "1 calls take more than 2% longer than DeepSpeed's, 1.05 to 1.05 times as long: "
        "`rms_norm` (1)" in " ".join(text.split())
    )


def test_the_worst_case_on_the_cpu_is_named(tmp_path, monkeypatch):
    rows = [
        {"name": f"{op} 8x8 float32, 1 thread", "opdock_us": 1, "torch_us": r}
        | {"torch_over_opdock": r}
        for op, r in (("norm", 1.5), ("silu", 0.7456), ("add", 0.9876))
    ]
    recorded(tmp_path, monkeypatch, "one", "cpu_ops", *rows)
    text = " ".join(table.tables("cpu", record.read(tmp_path)).split())
    assert (
        "Torch is faster in 2 of 3 cases: its time is 0.75 to 0.988 of Opdock's, the lowest for "
        "silu 8x8 float32, 1 thread." in text
    )


@pytest.mark.parametrize("page", [table.README, table.DEEPSPEED])
def test_a_figure_that_is_typed_is_noticed(page, tmp_path, monkeypatch):
    """Runs table.py --check, which compares each page with what the records give."""
    copy = tmp_path / page.name
    text = page.read_text()
    at = text.index(table.BEGIN) + len(table.BEGIN) + 12
    copy.write_text(text[:at] + "9" + text[at:])
    monkeypatch.setattr(table, page.stem.upper(), copy)
    monkeypatch.setattr(table.sys, "argv", ["table.py", "--check"])
    with pytest.raises(SystemExit, match=re.escape(f"{copy} is out of date")):
        table.main()


def test_the_tables_of_all_cases_are_written_for_each_card(tmp_path, monkeypatch):
    """The page has only the summary."""
    monkeypatch.setattr(table, "TABLES", tmp_path / "benchmarks")
    monkeypatch.setattr(table.sys, "argv", ["table.py", "--tables"])
    table.main()
    names = {card.name for card in (table.HERE / "records").iterdir()}
    assert {path.stem for path in (tmp_path / "benchmarks").iterdir()} == names
    for name in names:
        text = (tmp_path / "benchmarks" / f"{name}.md").read_text()
        assert text.startswith(f"# All results: {name}\n") and text.count("\n## ") > 1
    assert "\n## gpu_ops" not in table.PAGE.read_text()


def test_what_readme_says_of_a_bare_system(tmp_path, monkeypatch):
    log = "".join(
        f"== {command}\nmuch\n== status 0 after {seconds} s, {3 * seconds} CPU s: {command}\n"
        for command, seconds in (("./dev demo", 130), ("./dev test", 700), ("./dev demo", 9))
    )
    assert "has not been recorded" in bare.sentence([])
    assert len(bare.results(log.replace("0 after 700", "1 after 700"))) == 1
    recorded(tmp_path, monkeypatch, "one", "bare", *bare.results(log))
    said = bare.sentence(record.read(tmp_path))
    assert "demo` took 2.2 minutes" in said and "test` 12 minutes" in said
    assert "second `./dev demo` 9 seconds" in said


class FakeGpu:
    """Replaces torch.cuda for timing.events_of(): work that is enqueued after the GPU's sleep, in
    cycles, has ended finds the GPU awake."""

    def __init__(self, host_cycles):
        self.host_cycles, self.slept = host_cycles, []
        self.cuda = self

    def _sleep(self, cycles):
        self.slept.append(cycles)

    def synchronize(self):
        pass

    def Event(self, enable_timing):
        return self

    def query(self):
        return self.slept[-1] < self.host_cycles

    def elapsed_time(self, _):
        return 0.5


@pytest.mark.parametrize(
    "host_cycles, sleeps, is_ahead",
    [(1e6, 1, True), (3e7, 2, True), (2e8, 3, True), (1e9, 3, False)],
)
def test_whether_the_gpu_slept_long_enough_is_known_after_each_sleep(host_cycles, sleeps, is_ahead):
    gpu = FakeGpu(host_cycles)
    times = timing.events_of(gpu, lambda i, pair: None, 4)
    assert times == [500.0] * 4
    assert (len(gpu.slept), times.is_ahead) == (sleeps, is_ahead)
