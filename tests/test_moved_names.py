"""Pages name keys and classes as they are now; ``r1lit.moved_keys`` has the earlier ones."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from tiny import ROOT

from r1lit.moved_keys import MOVED_CLASSES, MOVED_KEYS

PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("experiments/**/*.md"), ROOT / "README.md"])
STILL_USED = {"max_staleness", "critic", "entropy", "correction"}
"""Last parts of moved keys that are also words, or arguments of what stands in their place."""
KEYS = {key.rpartition(".")[2] for key in MOVED_KEYS} - STILL_USED
CLASSES = {path.rpartition(".")[2] for path in MOVED_CLASSES}
OLD = re.compile(rf"`(?:\w+\.)*({'|'.join(sorted(KEYS | CLASSES))})\b|\b(?:PPO|PRIME)Module\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_page_names_a_key_or_class_of_before(page: Path) -> None:
    text = re.sub(r"`train/[\w/]+`|`\w+\.py`", "", page.read_text())
    assert OLD.findall(text) == []


def test_earlier_names_are_found() -> None:
    for text in ("`model.kl_in_reward`", "`mask_truncated: true`", "`Kept`", "PPOModule"):
        assert OLD.search(text), text
    assert not OLD.search("`OnlyKept`, `r1lit.steps.KLInReward` and `ProcessRewardModule`")


def test_what_stands_in_the_place_of_each_exists() -> None:
    for text in (*MOVED_KEYS.values(), *MOVED_CLASSES.values()):
        named = re.findall(r"(r1lit\.\w+)\.([A-Z]\w+)", text)
        assert named, text
        for package, name in named:
            assert hasattr(importlib.import_module(package), name), name
    for path in MOVED_CLASSES:
        package, _, name = path.rpartition(".")
        assert not hasattr(importlib.import_module(package), name), path
