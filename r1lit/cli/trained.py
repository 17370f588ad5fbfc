"""The contents of a run folder about its policy: source, prompts, problems and grader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentError, ArgumentParser
from lightning.pytorch import LightningDataModule
from transformers import PreTrainedTokenizerBase

from r1lit.callbacks.run_config import read_yaml
from r1lit.cli.composition import SHIPPED, find
from r1lit.console import root_fault
from r1lit.data import R1DataModule
from r1lit.data.datamodule import PromptOptions
from r1lit.data.sources import read_problems
from r1lit.errors import message_of
from r1lit.files import looked_in
from r1lit.policy.source import SETTINGS_FILE
from r1lit.problems import Problem
from r1lit.rollout import Sampling
from r1lit.text.prompts import squeezed
from r1lit.verifiers import Grader

HELD_OUT = ("validation", "test", "train")
"""Splits whose problems are shown, those that were not trained on first."""


@dataclass(kw_only=True)
class Trained:
    """The data, grader and sampling of a policy's training, by its run's ``config.yaml``.

    Args:
        data: the run's data module, if it is one of problems.
        split: of the problems: ``validation``, ``test`` or ``train``; empty where there are none.
        problems: of one turn each.
        known: every problem of one turn of any split, by the words of its question.
        grader: decides about responses to them.
        sampling: how responses were sampled in evaluation; None where the run sampled none.
        why_none: why there are no problems.
    """

    data: R1DataModule | None = None
    split: str = ""
    problems: list[Problem] = field(default_factory=list)
    known: dict[str, Problem] = field(default_factory=dict)
    grader: Grader = field(default_factory=Grader)
    sampling: Sampling | None = None
    why_none: str = ""

    def prompts(self, tokenizer: PreTrainedTokenizerBase) -> PromptOptions:
        """Return how a question becomes a prompt, with the solved problems that stand before it."""
        if self.data is None:
            return PromptOptions()
        if not self.split:
            return self.data.prompts
        return self.data.prompts_of(self.split, partial(self.data.prompts.literal, tokenizer))


def policy_of(path: str) -> str:
    """Return the policy that a path names: a run folder's ``policy``, any other path itself.

    Raises:
        ValueError: if a run has not written it yet, or there is no such folder.
    """
    if path.startswith(SHIPPED):
        return str(find(path))
    folder = Path(path).expanduser()
    if not folder.exists():
        if folder.is_absolute() or path.count("/") != 1 or folder.parent.is_dir():
            raise ValueError(
                f"run: {path} does not exist{looked_in(path)}; name a run folder, a folder with a"
                " Hugging Face model, or a model on the hub as owner/model"
            )
        return path  # a name on the hub
    if any((folder / name).is_file() for name in ("config.json", SETTINGS_FILE)):
        return str(folder)
    if not (folder / "config.yaml").is_file():
        within = sorted(str(each.parent) for each in folder.glob("*/config.yaml"))
        runs = f"; runs in it: {', '.join(within[:5])}" if within else ""
        raise ValueError(
            f"run: {path} is neither a run folder (it has no config.yaml) nor a Hugging Face model"
            f" (no config.json){runs}"
        )
    callbacks = settings_of(folder).get("trainer", {}).get("callbacks") or []
    arguments = [one.get("init_args") or {} for one in callbacks if "Export" in one["class_path"]]
    named = [Path(one["dirpath"]) for one in arguments if one.get("dirpath")]
    for policy in (folder / "policy", *named):
        if (policy / "config.json").is_file() or (policy / SETTINGS_FILE).is_file():
            return str(policy)
    raise ValueError(
        f"run: {path} has no policy folder yet; r1lit.callbacks.ExportHuggingFace writes it when"
        " the fit ends, or every_n_iterations"
    )


def run_of(path: str) -> Path | None:
    """Return the run folder that a path is, or that its policy folder lies in."""
    folder = Path(path).expanduser()
    found = [f for f in (folder, folder.absolute().parent) if (f / "config.yaml").is_file()]
    return found[0] if found else None


def settings_of(run: Path) -> dict[str, Any]:
    """Return a run's configuration.

    Raises:
        ValueError: if ``config.yaml`` holds none.
    """
    path = run / "config.yaml"
    try:
        config = read_yaml(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"run: {path} is not YAML ({message_of(error)})") from error
    if not isinstance(config, dict):
        raise ValueError(f"run: {path} holds no configuration")
    return config


def trained(run: Path) -> Trained:
    """Return the data, grader and sampling that a run's policy was trained with.

    Raises:
        ValueError: if ``config.yaml`` cannot be read as r1lit reads it now.
    """
    config = settings_of(run)
    model = (config.get("model") or {}).get("init_args") or {}
    data = make(config, "data", LightningDataModule, run)
    sampling = model.get("validation_sampling") or model.get("sampling")
    found = Trained(
        data=data if isinstance(data, R1DataModule) else None,
        grader=make(model, "grader", Grader, run) or Grader(),
        sampling=sampling_of(sampling),
    )
    if not isinstance(data, R1DataModule):
        found.why_none = f"{run / 'config.yaml'} has no data module of problems"
        return found
    data.seed = config.get("seed_everything") or 0  # the command line links them
    try:
        _read(found, data)
    except (ValueError, ImportError, OSError) as error:
        found.why_none = message_of(error)
    return found


def _read(found: Trained, data: R1DataModule) -> None:
    """Read the problems of a run's data."""
    for split in HELD_OUT:
        sources = data.problem_sources.get(split)
        if not sources:
            continue
        every, _ = read_problems(sources, split)
        problems = [problem for problem in every if not problem.environment]
        for problem in problems:
            found.known.setdefault(squeezed(problem.question), problem)
        if problems and not found.problems:
            found.problems, found.split = problems, split
            data.problems[split] = every
        elif every and not problems:
            found.why_none = "the run's problems have several turns in an environment each"
    if not found.problems:
        found.why_none = found.why_none or "the run's data are documents alone"


def make(config: Mapping[str, Any], key: str, kind: Any, run: Path) -> Any:
    """Return the instance that a key of a configuration describes, or None if it is not given.

    Raises:
        ValueError: naming the file and what of it cannot be made.
    """
    given = config.get(key)
    if given is None:
        return None
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument(f"--{key}", type=kind)
    try:
        return parser.instantiate_classes(parser.parse_object({key: given}))[key]
    except (ArgumentError, TypeError, ValueError, ImportError) as error:
        reason = message_of(root_fault(error))
        raise ValueError(f"run: {key} of {run / 'config.yaml'} cannot be made: {reason}") from error


def sampling_of(given: Any) -> Sampling | None:
    """Return the sampling that a configuration describes, or None if it is not given."""
    if not isinstance(given, Mapping):
        return None
    names = {f.name for f in fields(Sampling)}
    return Sampling(**{name: value for name, value in given.items() if name in names})
