"""docs/TROUBLESHOOTING.md is what the rules say, and what links to it finds its anchor."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from itertools import chain

from tiny import ROOT

from r1lit.doctor.rules import RULES

PAGE = (ROOT / "docs" / "TROUBLESHOOTING.md").read_text()


def writer():
    spec = importlib.util.spec_from_file_location("page", ROOT / "docs/troubleshooting.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_written_from_the_rules():
    assert writer().as_page() == PAGE, "run python docs/troubleshooting.py"


def test_every_rule_has_one_place_a_symptom_of_its_own_and_a_command():
    places = Counter(chain.from_iterable(writer().SECTIONS.values()))
    assert places == Counter(rule.name for rule in RULES)
    assert len({rule.symptom for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert f"`r1lit doctor runs/mine --rule {rule.name}`" in PAGE
        assert rule.link == f"docs/TROUBLESHOOTING.md#{rule.name}"


def test_links_in_warnings_and_pages_have_an_anchor():
    anchors = set(re.findall(r"^#+ (\w+)$", PAGE, re.MULTILINE))
    files = [*(ROOT / "r1lit").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    text = "\n".join(file.read_text() for file in files)
    links = re.findall(r"TROUBLESHOOTING\.md#(\w+)", text)
    assert len(set(links)) >= 3 and set(links) <= anchors
