"""docs/COMING_FROM.md: r1lit's keys exist, and TRL's have the defaults that the page gives."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import re
from typing import Any

import pytest
from tiny import ROOT

import r1lit.callbacks
import r1lit.data
import r1lit.modules
import r1lit.objectives
import r1lit.rollout
import r1lit.steps
from r1lit.cli.command import OPTIONS

PAGE = (ROOT / "docs" / "COMING_FROM.md").read_text()
PARTS = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
TRL_PART = PARTS["TRL's `GRPOConfig`"]
ROW = re.compile(r"^\| `([^|]+)` \| `([^|]+)` \| `([^|`]+)` \|", re.M)
OF_TRL = {key: (default, ours) for key, default, ours in ROW.findall(TRL_PART)}
OF_VERL = re.findall(r"^\| `[^|]+` \| `([^|`]+)` \|", PARTS["verl"], re.M)
WITHOUT = set(re.findall(r"`(\w+)`", TRL_PART.split("no counterpart")[1].split("SAPO's")[0]))


def arguments(of: Any, *parents: Any) -> set[str]:
    """The arguments of a class, and those that go to its parents."""
    return {name for each in (of, *parents) for name in inspect.signature(each).parameters}


PLACES: dict[str, set[str]] = {
    "model": arguments(r1lit.modules.GRPOModule, r1lit.modules.PolicyModule),
    "model.sampling": arguments(r1lit.rollout.Sampling),
    "model.objective": arguments(r1lit.objectives.GRPO, r1lit.objectives.Objective),
    "model.objective.DAPO": arguments(r1lit.objectives.DAPO),
    "data": arguments(r1lit.data.R1DataModule),
    "data.rollout": arguments(r1lit.data.RolloutOptions),
    "data.evaluation": arguments(r1lit.data.EvaluationOptions),
    "data.prompts": arguments(r1lit.data.PromptOptions),
    "data.limits": {"max_turns"},
    "rollout.VLLMEngine": arguments(r1lit.rollout.VLLMEngine),
    "steps.Correction": arguments(r1lit.steps.Correction),
    "steps.KLInReward": arguments(r1lit.steps.KLInReward),
}


def exists(key: str) -> bool:
    place, _, name = key.rpartition(".")
    if not place:
        return name in {*OPTIONS, "seed_everything"}
    if place == "trainer":
        from lightning.pytorch import Trainer

        return name in arguments(Trainer)
    if place.startswith("callbacks."):
        return name in arguments(getattr(r1lit.callbacks, place.split(".")[1]))
    return name in PLACES[place]


def test_the_tables_are_read():
    assert len(OF_TRL) > 45 and len(OF_VERL) > 20 and len(WITHOUT) > 30
    assert TRL_PART.count("\n| `") == len(OF_TRL)


@pytest.mark.parametrize("key", sorted({*(ours for _, ours in OF_TRL.values()), *OF_VERL}))
def test_r1lits_keys_exist(key):
    assert exists(key), key
    assert not exists(f"{key}x")


def test_every_class_that_is_named_exists():
    named = re.findall(r"r1lit\.(\w+)\.([A-Z]\w+)", PAGE)
    assert len(named) == 10
    for package, name in named:
        assert hasattr(getattr(r1lit, package), name), name


@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is in the extra bench")
def test_trls_keys_and_defaults_are_those_of_its_config():
    from transformers import TrainingArguments
    from trl import GRPOConfig

    fields = {field.name: field for field in dataclasses.fields(GRPOConfig)}
    for key, (default, _) in OF_TRL.items():
        assert fields[key].default == ast.literal_eval(default), key
    own = fields.keys() - {field.name for field in dataclasses.fields(TrainingArguments)}
    assert own - OF_TRL.keys() == WITHOUT
