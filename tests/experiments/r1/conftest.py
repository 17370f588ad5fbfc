"""The repository's root and the tiny evaluation on the path."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
for folder in (TESTS.parent, TESTS / "evaluation"):
    sys.path.insert(0, str(folder))
