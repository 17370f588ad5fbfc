"""The one command for a GPU: pieces that fail or hang leave the others, and a table comes last."""

from __future__ import annotations

import json
import time

import pytest

from benchmarks import on_gpu


def test_a_failing_and_a_hanging_piece_leave_the_others(tmp_path, monkeypatch, capsys) -> None:
    planted = {
        "good": (60, ["-c", "print('1 passed')"]),
        "bad": (60, ["-c", "raise SystemExit('no such kernel')"]),
        "slow": (1, ["-c", "import time; time.sleep(600)"]),
        "last": (60, ["-c", "print('fine')"]),
    }
    monkeypatch.setattr(on_gpu, "pieces", lambda output, tiny: planted)
    started = time.monotonic()
    assert on_gpu.main(["--tiny", "--output", str(tmp_path)]) == 2
    assert time.monotonic() - started < 300
    rows = json.loads((tmp_path / "on_gpu.json").read_text())["pieces"]
    assert [row["ended"] for row in rows] == ["done", "1", "out of time", "done"]
    assert rows[1]["last line"] == "no such kernel"
    table = capsys.readouterr().out.strip().splitlines()
    assert len(table) == 5 and table[1].startswith("good") and table[4].endswith("fine")


def test_within_ten_minutes_and_every_piece_has_a_command(tmp_path) -> None:
    for tiny in (False, True):
        assert sum(limit for limit, _ in on_gpu.pieces(tmp_path, tiny).values()) <= 600
    with pytest.raises(SystemExit):
        on_gpu.main(["--tiny", "--only", "tsets", "--output", str(tmp_path)])
