"""The repository's root on the path, for ``experiments``, and a sweep small enough to run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml
from tiny_sweep import ROOT, TINY, variant

sys.path.insert(0, str(ROOT))


@pytest.fixture
def sweep_file(tmp_path, monkeypatch):
    """Write the tiny sweep, with changes to its content, and return its path."""
    monkeypatch.chdir(ROOT)

    def write(**changes: object) -> Path:
        tiny = tmp_path / "tiny.yaml"
        tiny.write_text(yaml.safe_dump(TINY))
        shipped = Path("configs/mini/r1_zero.yaml").read_text()
        base = tmp_path / "base.yaml"  # with a checkpoint after every iteration
        shipped = re.sub(r"(every_n_iterations): \d+", r"\1: 1", shipped)
        draws = "class_path: r1lit.callbacks.CurveWriter\n"
        not_here = f"{draws}      init_args: {{draw_every_n_iterations: 0}}\n"
        base.write_text(shipped.replace(draws, not_here))
        content = {
            "base": [str(base), str(tiny)],
            "grid": {"objective": {"grpo": variant("GRPO"), "dr": variant("DrGRPO", max_tokens=8)}},
            "seeds": [0, 1],
            "output": str(tmp_path / "out"),
        }
        path = tmp_path / "study.yaml"
        path.write_text(yaml.safe_dump({**content, **changes}, sort_keys=False))
        return path

    return write
