"""R1 on four kinds of problems: every stage's config asks them, and touches no other run."""

from __future__ import annotations

import json

import pytest

from experiments import pipeline as pipelines
from experiments.compose import merge
from experiments.r1.__main__ import HERE

FILE = HERE / "reasoning.yaml"
FOUR = {"WorldCountdown", "WorldChain", "WorldPrograms", "WorldPuzzles"}


@pytest.fixture(scope="module")
def steps():
    return {step.name: step for step in pipelines.read_pipeline(FILE).steps}


def asked(step, key):
    sources = merge({}, *step.configs)["data"]["init_args"][key]
    return {source["class_path"].rpartition(".")[2] for source in sources}


def test_every_stage_of_rl_sampling_and_evaluation_asks_four_kinds(steps):
    for name in ("zero", "dev2", "r1"):
        assert asked(steps[name], "train") >= FOUR and asked(steps[name], "validation") >= FOUR
        grader = merge({}, *steps[name].configs)["model"]["init_args"]["grader"]
        assert grader == {"class_path": "r1lit.worlds.WorldGrader"}
    for name in ("few_shot", "direct", "from_zero", "rejection_sampling"):
        assert asked(steps[name], "predict") >= FOUR
    for stage in ("zero", "dev1", "dev2", "dev3", "r1"):
        assert asked(steps[f"eval_{stage}"], "test") >= FOUR


def test_the_stages_are_those_of_make_r1_without_distillation(steps):
    whole = pipelines.read_pipeline(HERE / "pipeline.yaml").steps
    left = {"teacher", "distilled", "small_rl", "eval_distilled", "eval_small_rl"}
    assert list(steps) == [step.name for step in whole if step.name not in left]


@pytest.mark.parametrize("seed", [0, 3])
def test_every_folder_is_this_runs_or_its_bases(seed):
    pipeline = pipelines.read_pipeline(FILE, seed)
    own = "runs/r1_reasoning" if seed == 0 else "runs/r1_reasoning-seed-3"
    assert str(pipeline.run) == own
    for step in pipeline.steps:
        text = json.dumps(step.configs).replace(own, "").replace("runs/pretrain_reasoning", "")
        assert '"runs/' not in text and '"models/' not in text, step.name
        for path in (*step.reads, *step.writes):
            assert str(path).startswith((own, "runs/pretrain_reasoning/policy"))
