"""``--list`` and ``--dry-run`` of ``r1lit test``: what suites would run, without a model."""

from __future__ import annotations

import re

import pytest
import yaml
from suite_rows import ROWS, write_rows
from tiny import ROOT

from r1lit.cli import main

PAPER = ROOT / "configs" / "eval" / "paper.yaml"
JUDGE = "--model.judge={class_path: r1lit.endpoint.ServedModel, init_args: {model: gpt-x}}"


def shown(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["test", "-c", str(PAPER), *arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_list_names_every_suite_with_its_place_and_judge(tmp_path, capsys):
    folder = write_rows(tmp_path / "data", "mmlu")
    lines = shown(capsys, "--list", f"--data.folder={folder}").splitlines()
    listed = yaml.safe_load(PAPER.read_text())["data"]["init_args"]["suites"]
    assert [line.split()[0] for line in lines] == listed
    by_name = dict(zip(listed, lines, strict=True))
    assert f"k  4  rules   {folder / 'mmlu.jsonl'}" in by_name["mmlu"]
    assert "k 64  rules   Idavidrein/gpqa" in by_name["gpqa_diamond"]
    assert "judge: none named (model.judge)" in by_name["simpleqa"]
    assert "judge: gpt-x" in shown(capsys, "--list", JUDGE)


def test_a_dry_run_counts_responses_and_shows_prompts(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    names = ("mmlu", "gpqa_diamond", "arena_hard", "frames")
    folder = write_rows(tmp_path / "data", *names)
    text = shown(capsys, "--dry-run", f"--data.folder={folder}", JUDGE,
                 f"--data.suites=[{', '.join((*names, 'aime2024'))}]")  # fmt: skip
    mmlu, gpqa = len(ROWS["mmlu"]) * 4, 3 * 64
    assert f"mmlu: 2 problems x 4 = {mmlu} responses; the last line" in text
    assert f"gpqa_diamond: 3 problems x 64 = {gpqa} responses" in text
    assert "\n    Answer the following multiple choice question. The last line" in text
    assert "arena_hard: 2 problems x 4 = 8 responses; judge gpt-x" in text
    assert "aime2024: left out: suite aime2024: path: 'HuggingFaceH4/aime_2024'" in text
    total = mmlu + gpqa + 8 + 4
    last = text.splitlines()[-1]
    assert last == (
        f"4 of 5 suites: {total:,} responses, at most {total * 32768:,} tokens (32,768 each),"
        f" {8 * 2 + 4} requests to a judge"
    )
    fewer = shown(capsys, "--dry-run", f"--data.folder={folder}", "--data.suites=[mmlu, frames]",
                  "--data.limit=1", "--data.num_samples=2",
                  "--model.sampling.max_tokens=10")  # fmt: skip
    assert "frames: left out: a language model grades it; name model.judge" in fewer
    assert re.search(r"1 of 2 suites: 2 responses, at most 20 tokens", fewer)


def test_the_flags_are_for_suites():
    with pytest.raises(ValueError, match="--list: is for r1lit test, not fit"):
        main(["fit", "-c", str(PAPER), "--list"])
    with pytest.raises(ValueError, match=r"--dry-run: data is .*R1DataModule', which names no"):
        main(["test", "-c", str(ROOT / "configs" / "eval" / "mmlu.yaml"), "--dry-run"])
