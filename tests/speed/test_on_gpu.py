"""The one command for a GPU: pieces that fail or hang leave the others, and a table comes last."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from benchmarks import on_gpu


def test_a_failing_and_a_hanging_piece_leave_the_others(tmp_path, monkeypatch, capsys) -> None:
    def python(code: str, limit: float = 60) -> on_gpu.Piece:
        return on_gpu.Piece(limit, ["-c", code], beside=False)

    left = "import subprocess, sys; subprocess.Popen(['sleep', '601']); print('1 passed')"
    planted = {
        "good": python(left),
        "bad": python("raise SystemExit('no such kernel')"),
        "slow": python("import time; time.sleep(600)", limit=1),
        "last": python("print('fine')"),
    }
    monkeypatch.setattr(on_gpu, "pieces", lambda output, size: planted)
    started = time.monotonic()
    assert on_gpu.main(["--tiny", "--output", str(tmp_path)]) == 2
    assert time.monotonic() - started < 300
    rows = json.loads((tmp_path / "on_gpu.json").read_text())["pieces"]
    assert [row["ended"] for row in rows] == ["done", "1", "out of time", "done"]
    assert rows[1]["last line"] == "no such kernel"
    assert "sleep 601" not in subprocess.run(["ps", "-ef"], capture_output=True, text=True).stdout
    table = capsys.readouterr().out.strip().splitlines()
    assert len(table) == 5 and table[1].startswith("good") and table[4].endswith("fine")


def test_within_ten_minutes_and_every_piece_has_a_command(tmp_path) -> None:
    for size in ("full", "tiny"):
        pieces = on_gpu.pieces(tmp_path, size).values()
        beside = max(piece.limit for piece in pieces if piece.beside)
        assert beside + sum(piece.limit for piece in pieces if not piece.beside) <= 600
    with pytest.raises(SystemExit):
        on_gpu.main(["--tiny", "--only", "tsets", "--output", str(tmp_path)])
