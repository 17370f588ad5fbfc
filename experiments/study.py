"""A study: a YAML of steps, a report of what they measured, and the README that shows it.

``experiments/<name>/study.yaml`` is data. With one grid::

    base: [configs/mini/aha.yaml]             # merged in order, as by repeated -c
    grid:
      limit:                                  # an axis; several axes are multiplied
        grows: {}                             # a variant: a fragment merged over the base
        stays: {model: {init_args: {max_tokens_from: null}}}
    seeds: [0, 1, 2]
    output: runs/aha_long                     # a run lives in <output>/<variant>/seed-<seed>

or with steps. One with a ``grid`` has the same keys and a name, and ``seeds`` of its own where they
are not the study's; the others are those of a pipeline (`experiments.pipeline`), made seed by seed
in ``<run>/seed-<seed>``, or for their own ``seeds`` alone::

    run: runs/late_onset
    seeds: [0, 1, 2]
    steps:
      - {name: pages, grid: {...}, base: [...], output: runs/late_onset_pages, seeds: [0]}
      - {name: figure, module: experiments.late_onset.figure, arguments: [...]}

What the page is made of::

    report: experiments.late_onset.report   # its read(study) returns records, its report(records)
                                            # Markdown and a figure, or several by image; a sweep's
                                            # own if left out
    figure: onset.png                       # of one figure; images that the README shows where it
                                            # speaks of them are not shown again below the tables
    note: "bands: ± 1 s.e."                 # of a sweep's figure, for the caption
    model: "Dev1 of make r1"                # what the caption calls the policy that all begin with
    labels: {grows: "limit grows late"}     # what the figure calls variants
    known_by: [variant, seed]               # which keys of a record name its run, for --also
    table: experiments.aha_long.jump        # a second table: MARKS, RAW, count(sweep), as_table
    readme: runs/prompts/gsm8k.md           # where, if not in the README beside the file or, if
                                            # that has no place for it, in that of the output
    arguments: {pairs: a table of pairs}    # NAME=VALUE of the command, {pairs} in the file
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.compose import Config, as_mapping
from experiments.curves import caption, models_of, relabel
from experiments.launch import Launch, in_subprocess
from experiments.page import RAW, START, with_others, write_into
from experiments.pipeline import Pipeline, read_pipeline
from experiments.report import write_report
from experiments.runner import check_configs, run_pipeline, unfinished, verdicts_of
from experiments.sweep import (
    Point,
    Sweep,
    check_variants,
    checked_seeds,
    list_points,
    read_sweep,
    run_sweep,
)
from r1lit.callbacks.figures import add_caption
from r1lit.cli import composition
from r1lit.files import Record, held, read_records

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study's file, read, for the seeds that are asked for."""

    path: Path
    content: Config
    values: dict[str, str | None]
    seeds: list[int]
    output: Path

    @property
    def runs(self) -> list[Path]:
        """The run folders of a pipeline's steps, one a seed."""
        return [self.output / f"seed-{seed}" for seed in self.seeds]

    def sweep(self, step: str | None = None) -> Sweep:
        """Return a grid of the study; the last one if no step is named."""
        grids = [s["name"] for s in self.content.get("steps", ()) if "grid" in s]
        sweep = read_sweep(self.path, step or (grids[-1] if grids else None), self.values)
        return replace(sweep, output=self.output) if "grid" in self.content else sweep

    def recorded(self) -> list[Record]:
        """Return the committed results beside the study's file; nothing where there are none."""
        path = self.path.with_name(RAW)
        return read_records(path) if path.exists() else []

    def seeds_of(self, step: Config) -> list[int]:
        """Return the seeds that a step is made for."""
        if "seeds" not in step or step is self.content:
            return self.seeds
        return checked_seeds(Path(f"{self.path}: step {step.get('name')}"), step["seeds"])

    def blocks(self) -> Iterator[tuple[bool, list[Config]]]:
        """Yield the steps in order: a grid alone, the others together; and whether it is a grid."""
        steps = [self.content] if "grid" in self.content else self.content["steps"]
        for is_grid, group in groupby(steps, key=lambda step: "grid" in step):
            own = list(group)
            yield from ((True, [step]) for step in own) if is_grid else [(False, own)]


def read_study(
    path: Path,
    *,
    seeds: Sequence[int] | None = None,
    output: Path | None = None,
    values: dict[str, str] | None = None,
) -> Study:
    """Read a study's file; seeds and output are the file's own if left out.

    Raises:
        ValueError: naming the key that is missing or wrong, or the argument that is not given.
    """
    content = composition.parse(str(path))
    arguments = as_mapping(f"{path}: arguments", content.get("arguments"))
    given = values or {}
    for name in given:
        if name not in arguments:
            known = ", ".join(arguments) or "none"
            raise ValueError(f"{name}: {path} has no such argument; it has {known}")
    for name, help_text in arguments.items():
        if name not in given and not str(help_text).startswith("optional"):
            raise ValueError(f"{name}: it is not given; say {name}=VALUE, {help_text}")
    if not isinstance(content.get("steps", []), list):
        raise ValueError(f"{path}: steps: {content['steps']!r} is not a list")
    where = output or Path(str(content.get("output") or content.get("run") or "runs"))
    own = checked_seeds(path, content.get("seeds"))
    return Study(
        path=path,
        content=content,
        values={name: given.get(name) for name in arguments},
        seeds=own if seeds is None else list(seeds),
        output=where,
    )


Submit = Callable[[Sweep, Sequence[int]], list[Point]]
"""Makes a grid for some seeds; returns the points that failed."""


def make(study: Study, launch: Launch = in_subprocess, submit: Submit | None = None) -> int:
    """Make what is missing; return the exit status, 1 if something failed.

    What another process makes is left to it; where a later step needs it, it is waited for.

    Args:
        study: the study.
        launch: makes a point of a grid.
        submit: makes a whole grid, in place of ``launch``.

    Raises:
        ValueError: if the config of a step or of a grid's variant is refused, before anything is
            made.
    """
    blocks = list(study.blocks())
    for step in (step for is_grid, steps in blocks if is_grid for step in steps):
        points = study.sweep(step.get("name")).points(study.seeds_of(step))
        check_variants([point for point in points if point.state != "finished"])
    chains = [steps for is_grid, steps in blocks if not is_grid]
    check_configs(
        [
            (pipeline, unfinished(pipeline, only=names))
            for steps in chains
            for pipeline, names in _pipelines(study, steps)
        ]
    )
    for place, (is_grid, steps) in enumerate(blocks, start=1):
        if is_grid:
            sweep, seeds = study.sweep(steps[0].get("name")), study.seeds_of(steps[0])
            if submit is not None:
                failed = submit(sweep, seeds)
            else:
                failed = run_sweep(sweep, seeds, launch, wait=place < len(blocks))
            if failed:
                return 1
            continue
        for pipeline, names in _pipelines(study, steps):
            with held(pipeline.run / ".runner.lock") as free:
                pass
            if free is None:
                print(f"seed {pipeline.seed}  left to another process", flush=True)
                continue
            only = () if len(names) == len(pipeline.steps) else names
            if status := run_pipeline(pipeline, only=only):
                return status
    return 0


def _pipelines(study: Study, steps: Sequence[Config]) -> Iterator[tuple[Pipeline, list[str]]]:
    """Yield a pipeline for each seed that some of the steps are made for, and their names."""
    for seed in dict.fromkeys(seed for step in steps for seed in study.seeds_of(step)):
        run = study.output / f"seed-{seed}"
        names = [step["name"] for step in steps if seed in study.seeds_of(step)]
        yield read_pipeline(study.path, seed, run, study.values), names


def list_steps(study: Study) -> None:
    """Print what `make` would do, without doing it.

    Raises:
        ValueError: if the config of a grid's variant is refused.
    """
    for is_grid, steps in study.blocks():
        if is_grid:
            list_points(study.sweep(steps[0].get("name")), study.seeds_of(steps[0]))
            continue
        for pipeline, names in _pipelines(study, steps):
            for step, verdict in verdicts_of(pipeline, only=names):
                if step.name in names:
                    print(f"{verdict:<12} {pipeline.run} {step.name}", flush=True)


def report(
    study: Study,
    also: Sequence[Path] = (),
    folder: Path | None = None,
    against: str | None = None,
) -> str:
    """Fill in the study's page from what is finished; return its tables.

    Args:
        study: the study.
        also: results.jsonl of runs that are not here.
        folder: of README.md; if left out that of the study's file, where that README has a place
            for the results, else the output folder.
        against: the variant that a sweep's others are compared with, if not the first.

    Raises:
        ValueError: if nothing is finished.
    """
    content, known_by = study.content, study.content.get("known_by", ())
    if also and not known_by:
        raise ValueError("--also: this study's records do not say of which run they are")
    if against is not None and "report" in content:
        raise ValueError("--against: this study has a report of its own, which compares its arms")
    beside = study.path.with_name("README.md")
    has_place = beside.exists() and START in beside.read_text()
    folder = folder or (beside.parent if has_place else study.output)
    readme = Path(content["readme"]) if "readme" in content else folder / "README.md"
    if "report" not in content:
        text = write_report(study.path, study.sweep(), folder, against)
    else:
        module = import_module(content["report"])
        records = with_others(module.read(study), also, known_by) if also else module.read(study)
        if not records:
            where = [study.output] if "grid" in content else study.runs
            raise ValueError(f"{', '.join(map(str, where))}: nothing is finished there yet")
        text, figures = made_of(study, records)
        kept = [{k: v for k, v in record.items() if k != "lines"} for record in records]
        write_into(readme, text, figures, kept)
    return "\n\n".join([text, *second_table(study, readme)])


def made_of(study: Study, records: list[Record]) -> tuple[str, dict[str, Figure]]:
    """Return what a study's own report makes of its records: tables, and figures by image."""
    content = study.content
    text, drawn = import_module(content["report"]).report(records)
    figures = named(drawn, content)
    for figure in figures.values():
        if "note" in content:
            add_caption(figure, caption(records, models_of(study.sweep()), content["note"]))
        relabel(figure, content.get("labels", {}))
    return text, figures


def named(drawn: Figure | dict[str, Figure] | None, content: Config) -> dict[str, Figure]:
    """Return what a study's report has drawn, by image; one figure has its name in the file."""
    if isinstance(drawn, dict):
        return drawn
    return {} if drawn is None else {content["figure"]: drawn}


def second_table(study: Study, readme: Path) -> list[str]:
    """Fill in the study's second table, if it has one, and return it."""
    if "table" not in study.content:
        return []
    module: Any = import_module(study.content["table"])
    records: list[Record] = module.count(study.sweep())
    table: str = module.as_table(records)
    write_into(readme, table, raw=records, marks=module.MARKS, raw_name=module.RAW)
    return [table]
