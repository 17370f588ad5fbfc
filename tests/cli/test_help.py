"""Help describes every key."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest
from jsonargparse import ArgumentParser

import r1lit
from r1lit import environments, refused
from r1lit.cli import main

PACKAGES = tuple(f"r1lit.{package}" for package in refused.PACKAGES)
NOT_IN_YAML = {
    *("Document", "Example", "LossInputs", "LossOutputs", "Completion", "ModelSpec", "Request"),
    *("Divergences", "FullScores", "HiddenStates", "LogProbs", "Policy", "PolicyOutput"),
    *(
        "PreferenceJudge",
        "Responses",
        "ScalarModel",
        "TopScores",
        "Candidate",
        "Collected",
        "Run",
        "Context",
        "Curation",
        "Refined",
        "PartialResponse",
        "Query",
        "ScoredResponse",
        "SearchResult",
        "StepRewards",
    ),
}
CLASSES = [
    found
    for package in map(importlib.import_module, PACKAGES)
    for name in package.__all__
    if inspect.isclass(found := getattr(package, name))
    and not inspect.isabstract(found)
    and name not in NOT_IN_YAML
    and found not in (environments.Reply, environments.StepResult, environments.ToolCall)
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
        (("--data.help=R1DataModule",),
         ("--data.rollout.group_size", "responses to each", "--data.prompts.max_tokens",
          "rows of an update, over all ranks", "responses to each problem")),
        (("--model.help", "r1lit.modules.SFTModule"),
         ("--model.validation_sampling", "how responses to held-out problems are sampled",
          "--model.optimizer", "tokens per backward pass")),
        (("--help",), ("--run RUN", "The run folder")),
        (("--model.help", "GRPOModule"),
         ("--model.objective", "--model.optimizer", "rows of a minibatch", "micro_batch_tokens",
          "tokens per backward pass")),
        (("--trainer.callbacks.help", "CurveWriter"), ("cons_k",)),
    ],
)  # fmt: skip
def test_the_command_line_shows_it(args, words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fit", *args])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for word in words:
        assert word in text


@pytest.mark.parametrize("args", [["--help"], ["-h"], []])
def test_help_of_the_whole_names_every_command(args, capsys):
    with pytest.raises(SystemExit) as stop:
        main(args)
    assert stop.value.code == (0 if args else 2)
    text = capsys.readouterr().out
    assert all(f"r1lit {command} " in text for command in ("fit", "validate", "test", "predict"))
    assert max(map(len, text.splitlines())) < 80


def test_the_version_is_said(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"r1lit {r1lit.__version__}\n"


LATE = {"datasets", "langdetect", "math_verify", "pandas", "peft", "sklearn", "trl", "vllm"}
LATE |= {"torch._inductor.compile_fx", "functorch.compile", "scipy.signal", "scipy.stats"}
"""What a run needs later or not at all: its first line does not wait for it."""
FIRST_LINE = """
import builtins, os, sys
show = print
def watch(*words, **options):
    show(*words, **options)
    if words and str(words[0]).startswith("First prompt as sent"):
        show("loaded:", *sys.modules, flush=True)
        os._exit(0)
builtins.print = watch
from r1lit.cli import main
main(sys.argv[1:])
"""


@pytest.mark.long
def test_the_first_line_of_a_run_waits_for_nothing_that_comes_later(tmp_path):
    """Nor does ``--print_config``, which has imported what a run has before its first line."""
    command = [sys.executable, "-c", FIRST_LINE, "fit", "-c", "r1lit:mini/r1_zero.yaml"]
    done = subprocess.run(
        [*command, "--run", str(tmp_path / "run")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.splitlines()[-1].split()
    assert loaded[0] == "loaded:" and "lightning" in loaded
    assert LATE & {*loaded} == set()


def test_a_run_says_what_begins_before_anything_heavy_is_imported():
    code = """
import sys
sys.modules |= dict.fromkeys(("torch", "lightning", "torchmetrics", "transformers"))
from r1lit.cli import main
try:
    main(["fit", "-c", "r1lit:mini/aha.yaml", "--trainer.max_epochs", "1", "--run", "runs/x"])
except ImportError:
    sys.exit(3)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "r1lit fit: runs/x, of r1lit:mini/aha.yaml\n"
    assert done.returncode == 3


@pytest.mark.long
def test_the_stand_in_of_a_library_gives_what_is_asked_of_it():
    code = """
import sys
from r1lit.cli import leave_out_of_torchmetrics
leave_out_of_torchmetrics("scipy.signal")
assert "torchmetrics" in sys.modules and "scipy.signal" not in sys.modules
import scipy.signal
from torchmetrics.functional.audio import permutation_invariant_training
assert scipy.signal.firwin(3, 0.5).sum() > 0.9
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_needs_no_lightning_does_not_wait_for_it():
    code = """
import sys
from r1lit.cli import main
for args in (["--help"], ["fit", "-c", "no.yaml"], ["train"]):
    try:
        main(args)
    except (SystemExit, ValueError):
        heavy = {"lightning", "torch", "transformers"} & {*sys.modules}
        assert not heavy, (args, heavy)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
