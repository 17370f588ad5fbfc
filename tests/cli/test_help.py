"""Help describes every key."""

from __future__ import annotations

import importlib
import inspect

import pytest
from jsonargparse import ArgumentParser

from r1lit.cli import main

PACKAGES = ("r1lit.data", "r1lit.worlds", "r1lit.modules", "r1lit.callbacks")
NOT_IN_YAML = {"Document", "Example"}
CLASSES = [
    found
    for package in map(importlib.import_module, PACKAGES)
    for name in package.__all__
    if inspect.isclass(found := getattr(package, name))
    and not inspect.isabstract(found)
    and name not in NOT_IN_YAML
    and inspect.signature(found).parameters
]


@pytest.mark.parametrize("of", CLASSES, ids=lambda c: c.__name__)
def test_every_key_of_a_class_is_described(of):
    parser = ArgumentParser(exit_on_error=False)
    keys = parser.add_class_arguments(of, "x", fail_untyped=False)
    described = {action.dest: action.help for action in parser._actions}
    assert keys or not inspect.signature(of).parameters
    assert not [key for key in keys if not (described[key] or "").strip()]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--data.help", "r1lit.data.R1DataModule"),
         ("--data.rollout.group_size", "responses to each", "--data.prompts.max_tokens",
          "rows of an update, over all ranks", "responses to each problem")),
        (("--model.help", "r1lit.modules.SFTModule"),
         ("--model.validation_sampling", "how responses to held-out problems are drawn",
          "--model.optimizer", "tokens per backward pass")),
        (("--help",), ("--run RUN", "The run folder")),
    ],
)  # fmt: skip
def test_the_command_line_shows_it(args, words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fit", *args])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for word in words:
        assert word in text
