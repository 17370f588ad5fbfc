"""A suite file of prompts, read: evaluations by policy, prompt and seed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.compose import Config, as_mapping, check_keys, merge, merged
from experiments.fingerprint import is_of
from experiments.points import checked_seeds, folder_name, seeds_in
from r1lit.cli import composition

KEYS = {
    "evaluation": list, "output": str, "report": str, "seeds": list, "policies": dict,
    "prompts": dict,
}  # fmt: skip
ONLY = "policies"
CONFIG, REPORT = "evaluation.yaml", "report.json"


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
        return merge(self.evaluation, self.policies[policy], prompts, own)

    def prompts_of(self, policy: str) -> list[str]:
        """Return the prompts that a policy gets."""
        return [name for name, own in self.prompts.items() if policy in own.get(ONLY, [policy])]

    def reports(self, policy: str, prompt: str) -> dict[int, dict[str, Any]]:
        """Return what is finished under this very suite file, of its seeds and others, by seed."""
        found = {}
        for seed in seeds_in(self.output / policy / prompt):
            folder = self.folder(policy, prompt, seed)
            report = folder / REPORT
            if report.exists() and is_of(folder, CONFIG, self.config(policy, prompt, seed)):
                found[seed] = json.loads(report.read_text())
        return found


def read_suite(path: Path) -> Suite:
    """Read a suite file; paths in it are from the working directory.

    Raises:
        ValueError: naming the key that is missing, unknown or of the wrong kind.
    """
    content = composition.read(str(path))
    check_keys(path, content, KEYS)
    policies, prompts = (_fragments(path, content, key) for key in ("policies", "prompts"))
    for name, own in prompts.items():
        only, known = own.get(ONLY, []), [*policies]
        if not isinstance(only, list) or not all(policy in known for policy in only):
            raise ValueError(
                f"{path}: prompts.{name}.{ONLY}: {only!r} is not a list of some of the suite's:"
                f" {', '.join(known)}"
            )
    return Suite(
        evaluation=merged(content["evaluation"], f"{path}: evaluation"),
        output=Path(content["output"]),
        report=Path(content["report"]),
        seeds=checked_seeds(path, content["seeds"]),
        policies=policies,
        prompts=prompts,
    )


def _fragments(path: Path, content: Config, key: str) -> dict[str, Config]:
    return {
        folder_name(f"{path}: {key}", name): as_mapping(f"{path}: {key}.{name}", own)
        for name, own in content[key].items()
    }
