"""The pages of studies: made again of their committed results, tables and figures are the same.

Figures are compared where Matplotlib is the version that drew the committed ones. This is the test
of what reports print and draw. Tests of single studies are of how results are read and measured,
and of what no committed row reaches.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from tiny import ROOT

from experiments import page
from experiments.paper.__main__ import main as paper
from experiments.r1.table import main as r1
from experiments.report import write_report
from experiments.study import made_of, read_study
from experiments.sweep import read_sweep
from experiments.tables import OVER_SEEDS, RULE, all_pairs
from experiments.variants import against_of, read_variants
from experiments.variants import report as report_variants
from r1lit.callbacks.figures import save_figure
from r1lit.files import read_records

EXPERIMENTS = ROOT / "experiments"
STUDIES = {
    path.parent.relative_to(EXPERIMENTS).as_posix(): yaml.safe_load(path.read_text())
    for path in sorted(EXPERIMENTS.rglob("study.yaml"))
    if path.with_name(page.RAW).exists()
}
OLDER = ("lora_ranks", "staleness")
"""Made before results had each problem's share."""
LESS = ("search/training",)
"""Keeps less than the page is made of."""
REPORTED = [name for name, own in STUDIES.items() if "report" in own and name not in LESS]
SWEEPS = [name for name, own in STUDIES.items() if "report" not in own and name not in OLDER]
SECOND = [name for name, own in STUDIES.items() if "table" in own]


def readme(name: str) -> str:
    return (EXPERIMENTS / name / "README.md").read_text()


def assert_same_picture(drawn: Path, shown: Path) -> None:
    """Compare two PNGs pixel by pixel; other versions of Matplotlib write text otherwise."""
    with Image.open(drawn) as one, Image.open(shown) as other:
        assert one.size == other.size, shown
        if one.info["Software"] == other.info["Software"]:
            ours, theirs = (np.asarray(image.convert("RGB"), dtype=int) for image in (one, other))
            # where a curve is fitted, the last bits of sums differ between machines
            assert np.abs(ours - theirs).max() <= 2, f"{shown} is not what is drawn of the results"


@pytest.mark.long
@pytest.mark.parametrize("name", REPORTED)
def test_the_page_of_a_study(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    values = dict.fromkeys(STUDIES[name].get("arguments", {}), "unused")
    study = read_study(EXPERIMENTS / name / "study.yaml", values=values)
    table, figures = made_of(study, study.recorded())
    block = page.with_images(table, figures, page.fill_in(readme(name), ""))
    assert page.fill_in(readme(name), block) == readme(name)
    assert figures.keys() == {image.name for image in (EXPERIMENTS / name).glob("*.png")}
    for image, figure in figures.items():
        save_figure(figure, tmp_path / image)
        assert_same_picture(tmp_path / image, EXPERIMENTS / name / image)


def test_every_image_beside_a_page_is_shown_there_once_and_is_a_pdf_too() -> None:
    pages = sorted(EXPERIMENTS.rglob("README.md"))
    for path in pages:
        shown = re.findall(r"!\[[^]]+\]\(([\w-]+\.png)\)", path.read_text())
        there = [image.name for image in path.parent.glob("*.png")]
        assert sorted(shown) == sorted(there), path.parent.name
        assert all((path.parent / image).with_suffix(".pdf").exists() for image in there)
    assert sum(len([*path.parent.glob("*.png")]) for path in pages) > 40


def test_the_page_of_stages_left_out() -> None:
    folder = EXPERIMENTS / "stages_skipped"
    against = against_of(read_variants(folder / "variants.yaml"))
    table = report_variants(read_records(folder / page.RAW), against)
    assert page.fill_in(readme("stages_skipped"), table) == readme("stages_skipped")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "make", "filled", "words"),
    [
        ("r1", r1, "README.md", []),
        ("r1/reasoning", r1, "README.md", ["--base=a base pretrained with programs and puzzles"]),
        ("paper", paper, "", []),
    ],
    ids=["r1", "r1/reasoning", "paper"],
)
def test_the_page_of_whole_runs(name: str, make, filled: str, words: list[str], tmp_path) -> None:
    shutil.copy(EXPERIMENTS / name / "README.md", tmp_path)
    kept = [str(path) for path in sorted((EXPERIMENTS / name / "results").glob("*.json"))]
    assert make([*kept, "--readme", str(tmp_path / filled), *words]) == 0
    assert (tmp_path / "README.md").read_text() == readme(name)
    [image] = tmp_path.glob("*.png")
    assert_same_picture(image, EXPERIMENTS / name / image.name)


@pytest.mark.long
@pytest.mark.parametrize("name", SWEEPS)
def test_the_page_of_a_sweep(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    for file in ("README.md", page.RAW):
        shutil.copy(EXPERIMENTS / name / file, tmp_path)
    path = EXPERIMENTS / name / "study.yaml"
    write_report(path, replace(read_sweep(path), output=tmp_path / "runs"), tmp_path)
    for file in ("README.md", page.RAW):
        assert (tmp_path / file).read_text() == (EXPERIMENTS / name / file).read_text()
    assert_same_picture(tmp_path / "curves.png", EXPERIMENTS / name / "curves.png")


@pytest.mark.parametrize("name", SECOND)
def test_the_second_table_of_a_page(name: str) -> None:
    module = import_module(STUDIES[name]["table"])
    table = module.as_table(read_records(EXPERIMENTS / name / module.RAW))
    assert page.fill_in(readme(name), table, module.MARKS) == readme(name)


@pytest.mark.parametrize("name", [*OLDER, *LESS])
def test_a_page_has_a_place_for_its_tables(name: str) -> None:
    assert "filled" in page.fill_in(readme(name), "filled")


@pytest.mark.parametrize("name", OLDER)
def test_the_pairs_of_an_older_page(name: str) -> None:
    assert f"{all_pairs(read_records(EXPERIMENTS / name / page.RAW))}\n" in readme(name)


def test_the_rule_stands_on_every_page_with_differences_over_seeds() -> None:
    pages = [path.read_text() for path in EXPERIMENTS.rglob("README.md")]
    over_seeds = [text for text in pages if " | ".join(OVER_SEEDS[1:]) in text]
    assert len(over_seeds) > 20 and all(RULE in text for text in over_seeds)
    named = [text for text in pages if "All pairs, over seeds: " in text]
    assert all(RULE in text for text in named), "pairs are compared in one way"


def test_intervals_over_seeds_are_computed_in_one_place() -> None:
    """Student's t is in the two files that own it: everything else calls them."""
    own = {"r1lit/metrics/seeds.py", "experiments/sequential.py"}
    calls = re.compile(r"\b(ttest_\w+|nct|stats\.t|t\.(ppf|isf|sf|cdf|interval))\b|4\.30|2\.776")
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("r1lit", "experiments", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if calls.search(path.read_text())
    }
    assert found == own


def test_every_page_with_results_is_among_these() -> None:
    found = {
        path.parent.relative_to(EXPERIMENTS).as_posix() for path in EXPERIMENTS.rglob(page.RAW)
    }
    assert found == {*REPORTED, *SWEEPS, *OLDER, *LESS, "stages_skipped"}
