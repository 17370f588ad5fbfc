"""An experiment of one pipeline file and several seeds: makes what is missing, then reports.

A seed's run lies in ``<output>/seed-<seed>``; see `experiments.r1.pipeline` and
`experiments.r1.runner` for what a pipeline file says and what is skipped, resumed or made anew.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.command import reported
from experiments.points import parse_seeds
from experiments.r1.pipeline import read_pipeline
from experiments.r1.runner import run_pipeline

Report = Callable[[Sequence[Path], Path], str]
"""Writes the report of run folders into the README.md of a folder, and returns its tables."""


def command(args: Sequence[str] | None, *, here: Path, doc: str | None, report: Report) -> int:
    """Run an experiment's command; return its exit status: 1 if a step failed, 2 for bad input.

    Args:
        args: of the command line.
        here: the experiment's folder, where ``pipeline.yaml`` and ``README.md`` lie.
        doc: what ``--help`` says.
        report: made of the seeds that are finished, at the end or, with ``--report``, alone.
    """
    parser = argparse.ArgumentParser(prog=f"python -m experiments.{here.name}", description=doc)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("pipeline", nargs="?", type=Path, default=here / "pipeline.yaml")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--output", type=Path, default=Path("runs") / here.name)
    parser.add_argument("--readme", type=Path, default=here, help="the folder of README.md")
    parser.add_argument("--report", action="store_true", help="run nothing, report what is there")
    options = parser.parse_args(args)

    @reported(here.name)
    def make() -> int:
        seeds = parse_seeds(options.seeds)
        runs = [options.output / f"seed-{seed}" for seed in seeds]
        for seed, run in zip(seeds, [] if options.report else runs, strict=False):
            status = run_pipeline(read_pipeline(options.pipeline, seed, run))
            if status:
                return status
        print(report(runs, options.readme))
        return 0

    return make()
