"""Every shipped fragment parses, and means what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from jsonargparse import ArgumentParser
from lightning.pytorch import LightningDataModule

from r1lit.cli import main
from r1lit.data import (
    CountdownTable,
    EvaluationOptions,
    PromptOptions,
    R1DataModule,
    RolloutOptions,
    TableDocuments,
    TableProblems,
)

CONFIGS = sorted((Path(__file__).parents[2] / "configs" / "data").glob("*.yaml"))
NAMES = [path.stem for path in CONFIGS]


def build(*arguments):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("-c", action="config")
    parser.add_subclass_arguments(LightningDataModule, "data")
    return parser.instantiate(parser.parse_args(list(map(str, arguments)))).data


def fragment(name):
    return CONFIGS[NAMES.index(name)]


def test_the_fragments_are_there():
    assert {"gsm8k", "math", "countdown", "jsonl"} <= set(NAMES)


@pytest.mark.parametrize("path", CONFIGS, ids=NAMES)
def test_a_fragment_builds_the_data_module_without_reading_data(path):
    data = build("-c", path)
    assert isinstance(data, R1DataModule)
    assert not data.problems and not data.documents
    given = yaml.safe_load(path.read_text())["data"]["init_args"]
    for key, value in given.items():
        if isinstance(value, dict):
            assert vars(getattr(data, key)).items() >= value.items(), key
        elif not isinstance(value, list):
            assert getattr(data, key) == value, key


def test_a_key_on_the_command_line_keeps_the_others_of_its_group():
    given = ["--data.init_args.prompts.max_tokens=9", "--data.rollout.group_size=3"]
    data = build("-c", fragment("gsm8k"), *given, "--data.rollout.num_reserve_prompts=2")
    assert data.prompts == PromptOptions(template="r1_zero", max_tokens=9)
    assert data.rollout == RolloutOptions(group_size=3, num_reserve_prompts=2)
    assert data.evaluation == EvaluationOptions(num_samples=1, prompts_per_batch=64)


def test_gsm8k_keeps_its_pattern():
    """Of a ``str | None`` jsonargparse would read ``####`` as a YAML comment, and thus null."""
    data = build("-c", fragment("gsm8k"))
    for split in ("train", "validation"):
        (source,) = data.problem_sources[split]
        assert isinstance(source, TableProblems)
        assert source.answer_pattern.pattern == r"####\s*(.+)"
        assert source.answer_remove == ","
    assert data.problem_sources["validation"][0].table.split == "test"


def test_countdown_parts_do_not_meet():
    data = build("-c", fragment("countdown"))
    (train,), (validation,) = data.problem_sources["train"], data.problem_sources["validation"]
    assert isinstance(train, CountdownTable)
    assert train.table.skip >= validation.table.limit


def test_jsonl_is_for_documents():
    data = build("-c", fragment("jsonl"))
    assert isinstance(data.document_sources["train"][0], TableDocuments)
    assert data.problem_sources["train"] is None


def test_local_files_by_the_command_line_that_gsm8k_names(real):
    data = build(
        "-c",
        fragment("gsm8k"),
        f"--data.train.path={real / 'gsm8k_train.jsonl'}",
        f"--data.validation.path={real / 'gsm8k_test.jsonl'}",
    )
    assert data.problem_sources["train"][0].problems()[0].answer == "72"
    assert len(data.problem_sources["validation"][0].problems()) == 1319


def test_local_files_by_the_command_line_that_math_names(real):
    data = build(
        "-c",
        fragment("math"),
        f"--data.train.path={real / 'math_train.json'}",
        "--data.train.meta=[difficulty]",
        f"--data.validation.path={real / 'math500.jsonl'}",
    )
    assert len(data.problem_sources["train"][0].problems()) == 7470
    assert len(data.problem_sources["validation"][0].problems()) == 500


def test_an_unknown_key_is_an_error():
    with pytest.raises(Exception, match="promts_per_iteration"):
        build("-c", fragment("gsm8k"), "--data.init_args.rollout.promts_per_iteration=3")


@pytest.mark.parametrize(("stage", "split"), [("test", "test"), ("validate", "validation")])
def test_a_stage_without_data_is_told_by_the_command_line(tmp_path, policy, stage, split):
    module = {"class_path": "r1lit.modules.SFTModule", "init_args": {"policy": str(policy)}}
    config = {"model": module, "data": {"class_path": "R1DataModule"}, "run": str(tmp_path)}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(ValueError, match=rf"^data: nothing is given to {stage}: data.{split} is"):
        main([stage, "-c", str(path), "--trainer.accelerator=cpu", "--trainer.logger=false"])
