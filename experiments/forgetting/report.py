"""The page of the study: each family's value by stage, and which stages lose or gain it.

A record is one family of one stage and seed, with the value of each problem. Values, intervals and
losses are those of `experiments.r1.forgetting`.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.curves import draw_cells
from experiments.r1.forgetting import Values, as_page, means_of, read_values
from experiments.r1.stages import BASE, STAGES
from experiments.study import Study
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.files import Record


def read(study: Study) -> list[Record]:
    """Return the records of every evaluated stage of every seed."""
    return [
        {"seed": seed, "stage": stage, "family": family, "values": values}
        for seed, run in zip(study.seeds, study.runs, strict=True)
        for stage in (BASE, *STAGES)
        for family, values in read_values(run / "eval" / stage).items()
    ]


def by_stage(records: Sequence[Record]) -> tuple[list[int], dict[str, list[Values]]]:
    """Return the seeds that came furthest, and their values of each stage."""
    runs: dict[int, dict[str, Values]] = {}
    for record in records:
        stages = runs.setdefault(record["seed"], {})
        stages.setdefault(record["stage"], {})[record["family"]] = record["values"]
    furthest = max(map(len, runs.values()))
    seeds = [seed for seed, stages in runs.items() if len(stages) == furthest]
    reached = [stage for stage in (BASE, *STAGES) if stage in runs[seeds[0]]]
    return seeds, {stage: [runs[seed][stage] for seed in seeds] for stage in reached}


def draw(stages: dict[str, list[Values]], seeds: Sequence[int]) -> Figure:
    """Return the figure: families by stages, each cell with its value from 0 to 1."""
    means = means_of(stages)
    figure = Figure(figsize=(6.4, 0.34 * len(means) + 1.6), dpi=110, layout="constrained")
    axes = figure.subplots()
    image = draw_cells(axes, list(means.values()), list(means), list(stages), vmin=0, vmax=1)
    tidy(axes, "What each stage keeps, by family")
    axes.grid(visible=False)
    figure.colorbar(image, label="value, 0 to 1")
    add_caption(figure, f"models/mini; {seeds_of(seeds)}; held-out problems, four responses each")
    return figure


def report(records: Sequence[Record]) -> tuple[str, Figure]:
    """Return the page's table with its changes, as Markdown, and the figure."""
    seeds, stages = by_stage(records)
    said = (
        f"{seeds_of(seeds)}, to stage {list(stages)[-1]}; held-out problems, four responses each."
    )
    return f"{said}\n\n{as_page(stages).rstrip()}", draw(stages, seeds)
