"""Files of one record a line, torn and cut back."""

from __future__ import annotations

import pytest

from r1lit import jsonl


def test_jsonl_survives_a_torn_line_and_is_cut_back(tmp_path):
    path = tmp_path / "new" / "x.jsonl"
    jsonl.append(path, [{"iteration": 0, "text": "ä\nb\u2028c"}, {"iteration": 1}])
    with path.open("a") as file:
        file.write('{"iteration": 2, "te')
    assert [r["iteration"] for r in jsonl.read(path)] == [0, 1]
    assert jsonl.read(path)[0]["text"] == "ä\nb\u2028c"
    assert jsonl.keep_only(path, lambda r: r["iteration"] < 1) == jsonl.read(path)
    jsonl.append(path, [{"iteration": 9}])
    assert [r["iteration"] for r in jsonl.read(path)] == [0, 9]
    assert [p.name for p in path.parent.iterdir()] == ["x.jsonl"]


def test_a_lone_surrogate_is_kept(tmp_path):
    path = tmp_path / "x.jsonl"
    jsonl.append(path, [{"text": "\udc80"}])
    assert jsonl.read(path) == [{"text": "\udc80"}]
    assert jsonl.keep_only(path, lambda r: True) == jsonl.read(path) == [{"text": "\udc80"}]


def test_a_line_that_is_no_record_is_named(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n[2]\n')
    with pytest.raises(ValueError, match=r"x\.jsonl, line 2: a JSON object is needed, not list"):
        jsonl.read(path)
