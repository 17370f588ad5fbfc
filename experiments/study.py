"""A study made of a sweep: its runs, then its page, by one command."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.command import reported
from experiments.curves import caption, models_of
from experiments.page import add_also, with_others, write_into
from experiments.points import Sweep, parse_seeds, read_sweep
from experiments.sweep import Launch, in_subprocess, run_sweep
from r1lit.callbacks.figures import add_caption
from r1lit.files import Record


def run_study(
    args: Sequence[str] | None,
    folder: Path,
    report: Callable[[Sequence[Record]], tuple[str, Figure]],
    image: str,
    *,
    read: Callable[[Sweep], list[Record]],
    note: str = "",
    known_by: Sequence[str] = (),
    launch: Launch = in_subprocess,
) -> int:
    """Make the runs of ``folder``'s sweep.yaml; put table and figure into its README.

    Beside it ``results.jsonl`` gets what they are made of.

    Args:
        args: of the command line.
        folder: of the study, ``experiments/<name>``.
        report: makes the Markdown and the figure of the finished points, as read.
        image: the figure's file.
        read: returns the finished points and what the report is made of; ``lines`` are not kept.
        note: for the figure's caption, what lines and bars are.
        known_by: the keys of a result that say of which run it is; without any there is no
            ``--also``.
        launch: makes a run.

    Returns:
        The exit status: 1 if a point failed, 2 for bad input.
    """
    name = ".".join(folder.relative_to(Path(__file__).parents[1]).parts)
    parser = argparse.ArgumentParser(prog=f"python -m {name}")
    parser.add_argument("sweep", nargs="?", type=Path, default=folder / "sweep.yaml")
    parser.add_argument("--seeds", help="instead of the file's, for example 0,1")
    parser.add_argument("--readme", type=Path, default=folder, help="the folder of README.md")
    parser.add_argument("--report", action="store_true", help="run nothing, report what is there")
    if known_by:
        add_also(parser)
    options = parser.parse_args(args)

    @reported(folder.name)
    def make() -> int:
        sweep = read_sweep(options.sweep)
        seeds = None if options.seeds is None else parse_seeds(options.seeds)
        failed = [] if options.report else run_sweep(sweep, seeds, launch)
        if failed and not sweep.results():
            return 1
        results = read(sweep)
        if known_by:
            results = with_others(results, options.also, known_by)
        if not results:
            raise ValueError(f"{sweep.output}: no point is finished yet")
        table, figure = report(results)
        add_caption(figure, caption(results, models_of(sweep), note))
        kept = [{k: v for k, v in result.items() if k != "lines"} for result in results]
        write_into(options.readme / "README.md", table, figure, image, kept)
        print(table)
        return 1 if failed else 0

    return make()
