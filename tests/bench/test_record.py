# SPDX-License-Identifier: Apache-2.0
"""Records: what is read is what was appended, with where it was measured; and shown of them."""

import record
import table


def test_each_result_is_read_with_where_it_was_measured(tmp_path, monkeypatch):
    file = tmp_path / "gpu.jsonl"
    for commit, results in (("one", [{"name": "a"}, {"name": "b", "us": 1.5}]), ("two", [{}])):
        monkeypatch.setattr(record, "environment", lambda commit=commit: {"commit": commit})
        record.append(file, "ops", results)
    assert record.read(file) == [
        {"bench": "ops", "name": "a", "where": {"commit": "one"}},
        {"bench": "ops", "name": "b", "us": 1.5, "where": {"commit": "one"}},
        {"bench": "ops", "where": {"commit": "two"}},
    ]


def test_what_was_measured_again_is_dropped_but_not_the_copies_beside_the_rest(
    tmp_path, monkeypatch
):
    file = tmp_path / "gpu.jsonl"

    def append(commit, bench, *names):
        monkeypatch.setattr(record, "environment", lambda: {"commit": commit})
        record.append(file, bench, [{"name": name, "peer": "opdock"} for name in names])

    append("one", "gpu_ops", "copy 1x2", "softmax 1x2")
    append("two", "gpu_ops", "copy 1x2", "softmax 1x2", "norm 1x2")
    append("three", "gemm", "norm 1x2")
    append("four", "gpu_ops", "copy 1x2", "softmax 1x2")
    record.prune(file)
    found = [(row["where"]["commit"], row["name"]) for row in record.read(file)]
    assert found == [
        ("two", "copy 1x2"),
        ("two", "norm 1x2"),
        ("three", "norm 1x2"),
        ("four", "copy 1x2"),
        ("four", "softmax 1x2"),
    ]
    before = file.read_text()
    record.prune(file)
    assert file.read_text() == before


def test_a_case_is_shown_beside_the_copy_of_its_own_run(tmp_path, monkeypatch):
    """Also where a later run has measured the copy again, for another op."""
    file = tmp_path / "gpu.jsonl"
    where = {"gpu": None, "cpu": "a", "cores": 1, "python": "3", "versions": {}, "date": "today"}
    for commit, copy, op in (("one", 100, "softmax"), ("two", 50, "norm")):
        monkeypatch.setattr(record, "environment", lambda commit=commit: where | {"commit": commit})
        rates = {"copy 1x2": copy, f"{op} 1x2": 40}
        rows = [{"name": name, "peer": "opdock", "gb_per_s": rates[name]} for name in rates]
        record.append(file, "gpu_ops", rows)
    text = table.tables(file)
    assert "| softmax 1x2 | 100 | 40.0% |" in text
    assert "| norm 1x2 | 50 | 80.0% |" in text
