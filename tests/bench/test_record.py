# SPDX-License-Identifier: Apache-2.0
"""Records: what is read is what was appended, with where it was measured."""

import record


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
