"""Evaluates policies under several prompts, and compares each with the first one.

    python -m experiments.prompts experiments/prompts/small_world.yaml [--seeds 0,1]

A suite file is data::

    evaluation: [evaluate.yaml]          # configs of r1lit test, merged in order
    output: runs/prompts/small_world     # evaluations: <output>/<policy>/<prompt>/seed-<seed>
    report: experiments/prompts/README.md
    seeds: [0, 1, 2]                     # of responses and shots
    policies: {base: {...}, r1: {...}}   # fragments merged over the evaluation's config
    prompts: {zero-shot: {}, ...}        # over that; the first is what others are compared with.
                                         # A key `policies` names the only ones that get it

Interrupted, the same command goes on with the responses that are missing. At the end, and after
each policy, the table is written into the report, between its two marks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.compose import Config, merge
from experiments.fingerprint import begin
from experiments.page import END, RAW, START, fill_in
from experiments.paired import over_problems
from experiments.points import shares_of
from experiments.report import mean_cell
from experiments.sweep import error_in, in_subprocess
from r1lit import composition, jsonl
from r1lit.atomic import replace_file
from r1lit.metrics import holm

Launch = Callable[[list[str], Path], int]
KEYS = ("evaluation", "output", "report", "seeds", "policies", "prompts")
ONLY = "policies"
KEPT = ("pass_at_1", "response_length", "eval_metrics", "num_problems", "num_samples")


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
        config = merge(self.evaluation, self.policies[policy] or {})
        config = merge(config, {k: v for k, v in self.prompts[prompt].items() if k != ONLY})
        where = {"dirpath": str(self.folder(policy, prompt, seed)), "suite": f"{policy}/{prompt}"}
        return merge(config, {"seed_everything": seed, "model": {"init_args": where}})

    def prompts_of(self, policy: str) -> list[str]:
        """Return the prompts that a policy gets."""
        return [name for name, own in self.prompts.items() if policy in own.get(ONLY, [policy])]

    def reports(self, policy: str, prompt: str) -> dict[int, dict[str, Any]]:
        """Return what is finished, by seed."""
        paths = {seed: self.folder(policy, prompt, seed) / "report.json" for seed in self.seeds}
        return {seed: json.loads(p.read_text()) for seed, p in paths.items() if p.exists()}


def read_suite(path: Path) -> Suite:
    """Read a suite file; paths in it are from the working directory.

    Raises:
        ValueError: naming the keys that are missing or unknown.
    """
    content = composition.read(str(path))
    if sorted(content) != sorted(KEYS):
        raise ValueError(f"{path}: a suite file has {', '.join(KEYS)}; this has {sorted(content)}")
    evaluation: Config = {}
    for name in content["evaluation"]:
        evaluation = merge(evaluation, composition.read(str(name)))
    return Suite(
        evaluation=evaluation,
        output=Path(content["output"]),
        report=Path(content["report"]),
        seeds=list(content["seeds"]),
        policies=content["policies"],
        prompts=content["prompts"],
    )


def run(suite: Suite, seeds: Sequence[int], launch: Launch = in_subprocess) -> list[str]:
    """Make what is missing; return the evaluations that failed."""
    failed = []
    for policy in suite.policies:
        for prompt in suite.prompts_of(policy):
            for seed in seeds:
                folder = suite.folder(policy, prompt, seed)
                config = begin(folder, "evaluation.yaml", suite.config(policy, prompt, seed))
                report, log = folder / "report.json", folder.parent / f"seed-{seed}.txt"
                name = f"{policy} {prompt} seed {seed}"
                status = 0 if report.exists() else launch(["test", "-c", str(config)], log)
                if status:
                    failed.append(name)
                    print(f"{name}  FAILED: {error_in(log, status)}", flush=True)
                else:
                    value = json.loads(report.read_text())["pass_at_1"]["value"]
                    print(f"{name}  pass@1 {value:.3f}", flush=True)
        write(suite)
    return failed


def as_table(suite: Suite) -> str:
    """Return the Markdown table: a row a policy and prompt, compared with the first prompt."""
    first = next(iter(suite.prompts))
    rows: list[list[str]] = []
    p_values: dict[int, float] = {}  # by row
    for policy in suite.policies:
        plain = suite.reports(policy, first)
        for prompt in suite.prompts_of(policy):
            reports = suite.reports(policy, prompt)
            if not reports:
                continue
            own = list(reports.values())
            cells = [policy, prompt, str(len(own))]
            cells += [mean_cell([r["pass_at_1"]["value"] for r in own], ".3f")]
            both = [seed for seed in reports if seed in plain]
            found = None
            if prompt != first and both:
                shares = ([shares_of(suite.folder(policy, p, s)) for s in both]
                          for p in (prompt, first))  # fmt: skip
                found = over_problems(*shares)
            if found is None:
                cells += ["", "", ""]
            else:
                p_values[len(rows)] = found.p_value
                interval = f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
                cells += [interval, f"{found.p_value:.2g}", ""]
            cells.append(mean_cell([r["response_length"]["mean"] for r in own], ".0f"))
            for metric in ("format", "language_consistency"):
                cells.append(mean_cell([r["eval_metrics"].get(metric) for r in own], ".3f"))
            rows.append(cells)
    for row, p_value in zip(p_values, holm(list(p_values.values())), strict=True):
        rows[row][6] = f"{p_value:.2g}"
    lines = [
        f"| policy | prompt | n seeds | pass@1 | less {first}, 95 % interval | p | p, Holm | tokens"
        " | well-formed | language consistency |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *("| " + " | ".join(cells) + " |" for cells in rows),
    ]
    said = (
        "pass@1, tokens, format and consistency: mean ± standard error over seeds. Differences are"
        f" paired by problem, over the seeds' means; Holm's correction is for {len(p_values)}"
        " comparisons."
    )
    return "\n".join([*lines, "", said]) if rows else "Not run yet."


def write(suite: Suite) -> None:
    """Write the table into the report; one that is not there is made.

    Raises:
        ValueError: if the report has no place for it.
    """
    text = f"# {suite.output.name}\n\n{START}\n{END}\n"
    if suite.report.exists():
        text = suite.report.read_text()
    replace_file(suite.report, fill_in(text, as_table(suite)).encode())
    raw = [
        {"policy": policy, "prompt": prompt, "seed": seed, **{key: report[key] for key in KEPT}}
        for policy in suite.policies
        for prompt in suite.prompts_of(policy)
        for seed, report in suite.reports(policy, prompt).items()
    ]
    if raw:
        jsonl.write(suite.report.with_name(RAW), raw)


def main(args: Sequence[str] | None = None, launch: Launch = in_subprocess) -> int:
    """Run the command; return its exit status: 1 if an evaluation failed, 2 for a bad file."""
    parser = argparse.ArgumentParser(prog="python -m experiments.prompts", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("suite", type=Path, help="the suite file")
    parser.add_argument("--seeds", help="instead of the file's, for example 0,1")
    options = parser.parse_args(args)
    try:
        suite = read_suite(options.suite)
        seeds = [int(s) for s in options.seeds.split(",")] if options.seeds else suite.seeds
        return 1 if run(suite, seeds, launch) else 0
    except ValueError as error:
        print(f"prompts: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
