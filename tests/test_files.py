"""Folders replaced whole; files of one record a line, torn and cut back."""

from __future__ import annotations

import json

import pytest

from r1lit.files import append_records, keep_records, read_records, replace_json, replace_path


def test_jsonl_survives_a_torn_line_and_is_cut_back(tmp_path):
    path = tmp_path / "new" / "x.jsonl"
    append_records(path, [{"iteration": 0, "text": "ä\nb\u2028c"}, {"iteration": 1}])
    with path.open("a") as file:
        file.write('{"iteration": 2, "te')
    assert [r["iteration"] for r in read_records(path)] == [0, 1]
    assert read_records(path)[0]["text"] == "ä\nb\u2028c"
    assert keep_records(path, lambda r: r["iteration"] < 1) == read_records(path)
    append_records(path, [{"iteration": 9}])
    assert [r["iteration"] for r in read_records(path)] == [0, 9]
    assert [p.name for p in path.parent.iterdir()] == ["x.jsonl"]


def test_a_lone_surrogate_is_kept(tmp_path):
    path = tmp_path / "x.jsonl"
    append_records(path, [{"text": "\udc80"}])
    assert read_records(path) == [{"text": "\udc80"}]
    assert keep_records(path, lambda r: True) == read_records(path) == [{"text": "\udc80"}]


def test_json_keeps_characters_and_lone_surrogates(tmp_path):
    path = tmp_path / "x.json"
    replace_json(path, {"数学": "\udc80"})
    assert '"数学": ' in path.read_text("utf-8")
    assert json.loads(path.read_text("utf-8")) == {"数学": "\udc80"}


def test_a_line_that_is_no_record_is_named(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n[2]\n')
    with pytest.raises(ValueError, match=r"x\.jsonl, line 2: a JSON object is needed, not list"):
        read_records(path)


def test_a_folder_replaces_a_folder_whole(tmp_path):
    for name, file in (("old", "a"), ("new", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(file)
    replace_path(tmp_path / "new", tmp_path / "old")
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()] == ["old/b"]
