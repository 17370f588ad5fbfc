"""Replacing files and folders whole."""

from __future__ import annotations

from r1lit.atomic import replace_path


def test_a_folder_replaces_a_folder_whole(tmp_path):
    for name, file in (("old", "a"), ("new", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(file)
    replace_path(tmp_path / "new", tmp_path / "old")
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()] == ["old/b"]
