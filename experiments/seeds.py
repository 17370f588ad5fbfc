"""An experiment of one pipeline file and several seeds: makes what is missing, then reports.

A seed's run lies in ``<output>/seed-<seed>``; see `experiments.r1.pipeline` and
`experiments.r1.runner` for what a pipeline file says and what is skipped, resumed or made anew.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.command import reported
from experiments.page import add_also, with_others, write_into
from experiments.points import parse_seeds
from experiments.r1.pipeline import read_pipeline
from experiments.r1.runner import run_pipeline
from r1lit.files import Record

Read = Callable[[Sequence[Path]], list[Record]]
"""Returns what finished run folders measured, as it is to be kept."""
Report = Callable[[Sequence[Record]], tuple[str, Figure]]
"""Makes the tables, as Markdown, and the figure of what was measured."""


def command(
    args: Sequence[str] | None,
    *,
    here: Path,
    doc: str | None,
    read: Read,
    report: Report,
    known_by: Sequence[str] = (),
) -> int:
    """Run an experiment's command; return its exit status: 1 if a step failed, 2 for bad input.

    What was measured lies beside the README.md, ``results.jsonl``.

    Args:
        args: of the command line.
        here: the experiment's folder, where ``pipeline.yaml`` and ``README.md`` lie.
        doc: what ``--help`` says.
        read: the seeds that are finished.
        report: of them, at the end or, with ``--report``, alone. The figure is
            ``<experiment>.png``.
        known_by: the keys of a record that say of which run it is; without any there is no
            ``--also``.
    """
    parser = argparse.ArgumentParser(prog=f"python -m experiments.{here.name}", description=doc)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("pipeline", nargs="?", type=Path, default=here / "pipeline.yaml")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--output", type=Path, default=Path("runs") / here.name)
    parser.add_argument("--readme", type=Path, default=here, help="the folder of README.md")
    parser.add_argument("--report", action="store_true", help="run nothing, report what is there")
    if known_by:
        add_also(parser)
    options = parser.parse_args(args)

    @reported(here.name)
    def make() -> int:
        seeds = parse_seeds(options.seeds)
        runs = [options.output / f"seed-{seed}" for seed in seeds]
        for seed, run in zip(seeds, [] if options.report else runs, strict=False):
            status = run_pipeline(read_pipeline(options.pipeline, seed, run))
            if status:
                return status
        records = read(runs)
        if known_by:
            records = with_others(records, options.also, known_by)
        if not records:
            raise ValueError(f"{', '.join(map(str, runs))}: nothing is finished there yet")
        tables, figure = report(records)
        write_into(options.readme / "README.md", tables, figure, f"{here.name}.png", records)
        print(tables)
        return 0

    return make()
