"""Every old key and class is told its new name in one line, in a file and on the command line."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest
import yaml
from tiny import ROOT

from r1lit.cli import main
from r1lit.cli.renamed import CLASSES, KEYS

WHERE = {"DataModule": "data", "Module": "model"}
PACKAGES = ("r1lit.modules", "r1lit.data", "r1lit.rewards", "r1lit.callbacks", "r1lit.policy")
PLACES = {"RejectionSampling": "trainer.callbacks[0]", "ServerTeacher": "model.teacher"}
OLD_KEYS = [(name, old, new) for name, keys in KEYS.items() for old, new in keys.items()]


def found(name: str) -> str:
    return next(p for p in PACKAGES if hasattr(importlib.import_module(p), name)) + "." + name


def place(name: str) -> str:
    single = next((w for end, w in WHERE.items() if name.endswith(end)), None)
    return single or PLACES.get(name, "model.rewards[0]")


def refused(tmp_path: Path, config: dict, *args: str) -> str:
    path = tmp_path / "old.yaml"
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(ValueError) as error:
        main(["fit", "-c", str(path), *args])
    assert "\n" not in str(error.value)
    return str(error.value)


def nested(where: str, node: dict) -> dict:
    if where == "model.rewards[0]":
        return {"model": {"class_path": "GRPOModule", "init_args": {"rewards": [node]}}}
    if where == "model.teacher":
        return {"model": {"class_path": "DistillationModule", "init_args": {"teacher": node}}}
    if where == "trainer.callbacks[0]":
        return {"trainer": {"callbacks": [node]}}
    return {where: node}


@pytest.mark.parametrize(("name", "old", "new"), OLD_KEYS, ids=[f"{n}-{o}" for n, o, _ in OLD_KEYS])
def test_an_old_key(tmp_path, name, old, new):
    where, node = place(name), {"class_path": found(name), "init_args": {old: 1}}
    message = f"{where}.{old}: this key is now {where}.{new}"
    assert refused(tmp_path, nested(where, node)) == message
    del node["init_args"]
    if where in WHERE.values():
        for given in (f"--{where}.init_args.{old}=1", f"--{where}.{old}=1"):
            assert refused(tmp_path, nested(where, node), given) == message
    # the new key is one of the class's, and the old one is not
    parameters = inspect.signature(getattr(*_module_and_name(found(name)))).parameters
    accepted = set(parameters)
    if "options" in parameters:
        accepted |= set(inspect.signature(_base(name)).parameters)
    assert new.split(".")[0] in accepted and old not in accepted


def _module_and_name(class_path: str):
    module, _, name = class_path.rpartition(".")
    return importlib.import_module(module), name


def _base(name: str):
    from r1lit.modules.base import PolicyModule

    return PolicyModule


@pytest.mark.parametrize("old", [c for c in CLASSES if c != "r1lit.rollout.PolicyEngine"])
def test_an_old_class(tmp_path, old):
    message = f"model.engine: {old} is now {CLASSES[old]}"
    model = {"class_path": "GRPOModule", "init_args": {"engine": {"class_path": old}}}
    assert refused(tmp_path, {"model": model}) == message
    model = {"class_path": "GRPOModule", "init_args": {"engine": {"class_path": "InProcessEngine"}}}
    for given in (f"--model.engine={old}", f"--model.init_args.engine.class_path={old}"):
        assert refused(tmp_path, {"model": model}, given) == message


@pytest.mark.parametrize("new", sorted(set(CLASSES.values())))
def test_a_new_class_is_there(new):
    module, name = _module_and_name(new.split(" ")[0])
    assert hasattr(module, name)


def test_the_changelog_lists_them_all():
    text = (ROOT / "CHANGELOG.md").read_text()
    for _, old, new in OLD_KEYS:
        assert f"`{old}`" in text and f"`{new}`" in text
    for old, new in CLASSES.items():
        assert old.split(".")[-1] in text and new.split(" ")[0].split(".")[-1] in text
