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

Interrupted, the same command goes on with the responses that are missing; started once more while
it runs, the two share the evaluations. At the end, and after each policy, the table is written into
the report, between its two marks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.command import reported
from experiments.fingerprint import begin
from experiments.points import parse_seeds
from experiments.prompts.report import write
from experiments.prompts.suite import CONFIG, REPORT, Suite, read_suite
from experiments.sweep import Launch, claimed, error_in, in_subprocess, printed


def run(suite: Suite, seeds: Sequence[int], launch: Launch = in_subprocess) -> list[str]:
    """Make what is missing, but for what another process makes; return what failed."""
    failed = []
    for policy in suite.policies:
        for prompt in suite.prompts_of(policy):
            for seed in seeds:
                name = f"{policy} {prompt} seed {seed}"
                folder = suite.folder(policy, prompt, seed)
                with claimed(folder) as free:
                    if not free:
                        print(f"{name}  left to another process", flush=True)
                        continue
                    config = begin(folder, CONFIG, suite.config(policy, prompt, seed))
                    error = _evaluate(folder, config, printed(launch, name))
                if error:
                    failed.append(name)
                    print(f"{name}  FAILED: {error}", flush=True)
                else:
                    value = json.loads((folder / REPORT).read_text())["pass_at_1"]["value"]
                    print(f"{name}  pass@1 {value:.3f}", flush=True)
        write(suite)
    return failed


def _evaluate(folder: Path, config: Path, launch: Launch) -> str | None:
    """Finish the evaluation of a folder; return how it failed, if it did."""
    if (folder / REPORT).exists():
        return None
    log = folder.with_name(f"{folder.name}.txt")
    status = launch(["test", "-c", str(config)], log)
    return error_in(log, status) if status else None


@reported("prompts")
def main(args: Sequence[str] | None = None, launch: Launch = in_subprocess) -> int:
    """Run the command; return its exit status: 1 if an evaluation failed, 2 for a bad file."""
    parser = argparse.ArgumentParser(prog="python -m experiments.prompts", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("suite", type=Path, help="the suite file")
    parser.add_argument("--seeds", help="instead of the file's, for example 0,1")
    options = parser.parse_args(args)
    suite = read_suite(options.suite)
    seeds = parse_seeds(options.seeds) if options.seeds else suite.seeds
    return 1 if run(suite, seeds, launch) else 0


if __name__ == "__main__":
    sys.exit(main())
