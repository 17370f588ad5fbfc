"""Patterns that every Python this package runs on matches in the same way."""

from __future__ import annotations

import ast
import re

import pytest
from tiny import ROOT

FILES = sorted((ROOT / "r1lit").rglob("*.py"))
BEHIND_A_GROUP = re.compile(r"\)(?:[*+?]|\{\d+(?:,\d*)?\})\+")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_possessive_quantifier_stands_behind_a_group(path):
    # Python 3.11.0 to 3.11.4 matches too much or nothing (gh-106052); (?>…) is right in all
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not BEHIND_A_GROUP.search(node.value), node.value
