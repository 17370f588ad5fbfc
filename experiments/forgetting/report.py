"""The page of the study: each family's value by stage, and which stages lose or gain it.

A record is one family of one stage and seed, with the value of each problem. Values, intervals and
losses are those of `experiments.r1.forgetting`.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.r1.forgetting import Values, as_page, read_values
from experiments.r1.stages import BASE, STAGES
from experiments.study import Study
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.files import Record
from r1lit.metrics import mean


def read(study: Study) -> list[Record]:
    """Return the records of every evaluated stage of every seed."""
    return [
        {"seed": seed, "stage": stage, "family": family, "values": values}
        for seed, run in zip(study.seeds, study.runs, strict=True)
        for stage in (BASE, *STAGES)
        for family, values in read_values(run / "eval" / stage).items()
    ]


def by_stage(records: Sequence[Record]) -> dict[str, list[Values]]:
    """Return the values of each stage, a seed each: of the seeds that came furthest."""
    runs: dict[int, dict[str, Values]] = {}
    for record in records:
        stages = runs.setdefault(record["seed"], {})
        stages.setdefault(record["stage"], {})[record["family"]] = record["values"]
    furthest = max(map(len, runs.values()))
    kept = [stages for stages in runs.values() if len(stages) == furthest]
    return {
        stage: [stages[stage] for stages in kept] for stage in (BASE, *STAGES) if stage in kept[0]
    }


def draw(stages: dict[str, list[Values]], seeds: Sequence[int]) -> Figure:
    """Return the figure: families by stages, each cell with its value from 0 to 1."""
    families = sorted(set.intersection(*(set(v) for own in stages.values() for v in own)))
    cells = [
        [mean([mean(list(run[family].values())) for run in own]) for own in stages.values()]
        for family in families
    ]
    figure = Figure(figsize=(6.4, 0.34 * len(families) + 1.6), dpi=110, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(cells, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(stages)), list(stages))
    axes.set_yticks(range(len(families)), families)
    for row, values in enumerate(cells):
        for column, value in enumerate(values):
            color = "white" if value < 0.6 else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=color)
    tidy(axes, "What each stage keeps, by family")
    axes.grid(visible=False)
    figure.colorbar(image, label="value, 0 to 1")
    add_caption(figure, f"models/mini; {seeds_of(seeds)}; held-out problems, four responses each")
    return figure


def report(records: Sequence[Record]) -> tuple[str, Figure]:
    """Return the page's table with its changes, as Markdown, and the figure."""
    stages = by_stage(records)
    counts: dict[int, set[str]] = {}
    for record in records:
        counts.setdefault(record["seed"], set()).add(record["stage"])
    seeds = [seed for seed, own in counts.items() if len(own) == max(map(len, counts.values()))]
    said = (
        f"{seeds_of(seeds)}, to stage {list(stages)[-1]}; held-out problems, four responses each."
    )
    return f"{said}\n\n{as_page(stages).rstrip()}", draw(stages, seeds)
