"""The table by language: of the committed results, and of records by hand."""

from __future__ import annotations

from tiny_sweep import ROOT

from experiments import page
from experiments.third_language.by_language import MARKS, RAW, as_table, language_of
from r1lit import jsonl

FOLDER = ROOT / "experiments" / "third_language"


def test_the_committed_table_is_of_the_committed_results():
    readme = (FOLDER / "README.md").read_text()
    assert page.fill_in(readme, as_table(jsonl.read(FOLDER / RAW)), MARKS) == readme


def test_means_are_of_the_language_and_the_variant_alone():
    assert [language_of(q) for q in ("make 9", "得到 9", "Получите 9")] == [
        "English", "Chinese", "Russian"
    ]  # fmt: skip
    records = [
        {"variant": variant, "seed": 0, "language": language, "when": when, "num_problems": 3,
         "language_consistency": consistency, "pass_at_1": 0.5}
        for language, start in (("English", 0.1), ("Chinese", 0.2), ("Russian", 0.3))
        for variant, gain in (("with", 0.5), ("without", 0.1))
        for when, consistency in (("before", start), ("after", start + gain))
    ]  # fmt: skip
    rows = as_table(records).splitlines()
    assert rows[2].startswith("| English | 3 | 0.100 | 0.600 | 0.200 | 0.500")
    assert rows[4].startswith("| Russian | 3 | 0.300 | 0.800 | 0.400 |")
