"""A suite file of prompts, read: evaluations by policy, prompt and seed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.compose import Config, merge, merged
from experiments.fingerprint import is_of
from experiments.points import checked_seeds, seeds_in
from r1lit import composition

KEYS = ("evaluation", "output", "report", "seeds", "policies", "prompts")
ONLY = "policies"
CONFIG = "evaluation.yaml"


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite file, read."""

    evaluation: Config
    output: Path
    report: Path
    seeds: list[int]
    policies: dict[str, Config]
    prompts: dict[str, Config]

    def folder(self, policy: str, prompt: str, seed: int) -> Path:
        """Return the folder of an evaluation."""
        return self.output / policy / prompt / f"seed-{seed}"

    def config(self, policy: str, prompt: str, seed: int) -> Config:
        """Return the config of an evaluation."""
        prompts = {k: v for k, v in self.prompts[prompt].items() if k != ONLY}
        where = {"dirpath": str(self.folder(policy, prompt, seed)), "suite": f"{policy}/{prompt}"}
        own = {"seed_everything": seed, "model": {"init_args": where}}
        return merge(self.evaluation, self.policies[policy] or {}, prompts, own)

    def prompts_of(self, policy: str) -> list[str]:
        """Return the prompts that a policy gets."""
        return [name for name, own in self.prompts.items() if policy in own.get(ONLY, [policy])]

    def reports(self, policy: str, prompt: str) -> dict[int, dict[str, Any]]:
        """Return what is finished under this very suite file, of its seeds and others, by seed."""
        found = {}
        for seed in seeds_in(self.output / policy / prompt):
            folder = self.folder(policy, prompt, seed)
            report = folder / "report.json"
            if report.exists() and is_of(folder, CONFIG, self.config(policy, prompt, seed)):
                found[seed] = json.loads(report.read_text())
        return found


def read_suite(path: Path) -> Suite:
    """Read a suite file; paths in it are from the working directory.

    Raises:
        ValueError: naming the key that is missing, unknown or of the wrong kind.
    """
    content = composition.read(str(path))
    if sorted(content) != sorted(KEYS):
        raise ValueError(f"{path}: a suite file has {', '.join(KEYS)}; this has {sorted(content)}")
    _check(path, content)
    return Suite(
        evaluation=merged(content["evaluation"], f"{path}: evaluation"),
        output=Path(content["output"]),
        report=Path(content["report"]),
        seeds=checked_seeds(path, content["seeds"]),
        policies=content["policies"],
        prompts={name: own or {} for name, own in content["prompts"].items()},
    )


def _check(path: Path, content: Config) -> None:
    """Raise a ValueError where an entry of a suite file would do something else, or nothing."""
    files = content["evaluation"]
    if not isinstance(files, list) or not files:
        raise ValueError(f"{path}: evaluation: {files!r} is not a list with an entry")
    for key in ("policies", "prompts"):
        if not isinstance(content[key], dict) or not content[key]:
            raise ValueError(f"{path}: {key}: {content[key]!r} is not a mapping: fragments by name")
        for name, own in content[key].items():
            if not re.fullmatch(r"[\w.-]+", str(name)):
                raise ValueError(
                    f"{path}: {key}: {name!r} cannot name a folder: letters, digits, . - _"
                )
            if not isinstance(own, dict | None):
                raise ValueError(f"{path}: {key}.{name}: {own!r} is not a mapping of keys")
    for name, own in content["prompts"].items():
        only = (own or {}).get(ONLY)
        if only is not None and not (isinstance(only, list) and {*only} <= {*content["policies"]}):
            raise ValueError(
                f"{path}: prompts.{name}.{ONLY}: {only!r} is not a list of some of the suite's:"
                f" {', '.join(content['policies'])}"
            )
