"""The table by language: of the committed results, and of records by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tiny_sweep import ROOT, TINY

from experiments import page
from experiments.compose import merge
from experiments.points import read_sweep
from experiments.sweep import run_sweep
from experiments.third_language.by_language import MARKS, RAW, as_table, language_of
from r1lit import cli
from r1lit.files import read_records

FOLDER = ROOT / "experiments" / "third_language"


def test_the_committed_table_is_of_the_committed_results():
    readme = (FOLDER / "README.md").read_text()
    assert page.fill_in(readme, as_table(read_records(FOLDER / RAW)), MARKS) == readme


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


@pytest.mark.slow
def test_from_russian_pages_to_the_table(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(ROOT)
    few = tmp_path / "few.yaml"
    pages = {"class_path": "r1lit.worlds.WorldCorpus", "init_args": {"num_documents": 40}}
    russian = merge(pages, {"init_args": {"russian": 0.5}})
    config = {
        "data": {"init_args": {"num_iterations": 2, "documents": [russian],
                               "validation_documents": [pages]}},
        "trainer": {"val_check_interval": 2},
    }  # fmt: skip
    few.write_text(yaml.safe_dump(config))
    read = ["configs/mini/pretrain.yaml", "experiments/third_language/pretrain.yaml", str(few)]
    run = str(tmp_path / "pretrain")
    cli.main(["fit", *(word for path in read for word in ("-c", path)), "--run", run])

    shipped = read_sweep(FOLDER / "sweep.yaml")
    policy = {"policy": f"{run}/policy", "from_scratch": False}
    tiny = merge(TINY, {"model": {"init_args": policy}})
    asked = shipped.point("with", 0).config["data"]["init_args"]
    for split in ("train", "validation"):  # in all three languages, and few
        source = merge(asked[split][0], {"init_args": {"num_problems": 8}})
        tiny["data"]["init_args"][split] = [source]
    variants = {name: [*own, tiny] for name, own in shipped.variants.items()}
    sweep = replace(shipped, variants=variants, seeds=[0], output=tmp_path / "out")

    def launch(arguments: list[str], log: Path) -> int:
        cli.main(arguments)
        return 0

    assert run_sweep(sweep, launch=launch) == []
    for result in sweep.results():
        assert "language_consistency" in result["final"]["rewards"]
