"""docs/METRICS.md as a test reads it: key patterns and who owns them."""

from __future__ import annotations

import re
from pathlib import Path

from r1lit.metrics import REFLECTION_WORDS

PAGE = Path(__file__).parents[1] / "docs" / "METRICS.md"
STAGES = ("train", "val", "test")
MEASURED = ("time/", "speed/", "memory/")
"""Beginnings of keys that differ between two equal runs."""


def documented() -> dict[str, str]:
    """Return each key pattern of the page's tables with the last cell of its row, its owner."""
    owners = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        key = re.fullmatch(r"`((?:<stage>|train|val|test|time|speed|memory)/\S+)`", cells[0])
        if key and len(cells) == 5:
            owners[key[1]] = cells[4]
    return owners


def owned_by(name: str) -> set[str]:
    return {pattern for pattern, owner in documented().items() if name in owner.split(", ")}


def normalise(key: str) -> str:
    """Return the pattern that a logged key is an instance of, or the key itself."""
    stage, _, name = key.partition("/")
    words = "|".join(REFLECTION_WORDS)
    pattern = re.sub(r"^(pass|cons)_at_\d+$", r"\1_at_<k>", name)
    pattern = re.sub(rf"^reflection/(word|onset)/({words})$", r"reflection/\1/<word>", pattern)
    pattern = re.sub(r"^(groups/\w+|pass_at_1)/.+$", r"\1/<source>", pattern)
    pattern = re.sub(r"^(pass_at_1_of_kind)/.+$", r"\1/<kind>", pattern)
    pattern = re.sub(r"^reward/[^/]+$", "reward/<name>", pattern)
    pattern = re.sub(r"^difficulty/(new|hard|medium|easy)$", "difficulty/<pool>", pattern)
    pattern = re.sub(r"^environment/ended/\w+$", "environment/ended/<how>", pattern)
    for candidate in (name, pattern):
        for prefix in (stage, "<stage>"):
            if f"{prefix}/{candidate}" in documented():
                return f"{prefix}/{candidate}"
    return key


def assert_documented(logged: set[str]) -> None:
    unknown = {key for key in logged if normalise(key) not in documented()}
    assert not unknown, f"logged but not in docs/METRICS.md: {sorted(unknown)}"
