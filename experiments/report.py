"""The report of a sweep: ``README.md`` with tables, and ``curves.png``.

A README that is not there is made. Only points finished under the present sweep file count, and
failed ones are listed with their error.

Numbers are mean ± standard error over seeds: the sample standard deviation over the root of their
number. All seeds are evaluated on the same problems, so this error is that of training anew, not
that of drawing other problems. Variants are compared in pairs (`experiments.tables`).

The results themselves are written beside the README, ``results.jsonl``. Those beside a committed
README are committed too, and where no point is finished the report is made of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from experiments.curves import draw, models_of, relabel
from experiments.page import END, RAW, START, write_into
from experiments.sweep import Point, Sweep, best_of, score_of
from experiments.tables import (
    Column,
    Measure,
    all_pairs,
    as_markdown,
    at_ends,
    cons_at_most,
    is_measured,
    number,
    paired_table,
    table_by,
)
from r1lit.files import Record, held, read_records

COLUMNS: tuple[tuple[str, Measure, str], ...] = (
    ("pass@1", number("pass_at_1"), ".3f"),
    ("cons@k", cons_at_most, ".3f"),
    ("AUROC", number("reward_model", "auroc"), ".3f"),
    ("accuracy", number("reward_model", "accuracy"), ".3f"),
    ("validation loss", number("loss"), ".4f"),
    ("tokens per response", number("response_length_tokens"), ".0f"),
    ("reflection words per response", number("reflection_words_per_response"), ".2f"),
    ("well-formed", number("format"), ".3f"),
    ("process score", number("rewards", "process"), ".3f"),
    ("language consistency", number("rewards", "language_consistency"), ".3f"),
)
"""What the table says of the first and of the last evaluation: heading, value, format."""


def as_table(results: Sequence[Record]) -> str:
    """Return the Markdown table: a row a variant, mean ± standard error over its n seeds.

    ``0.20 → 0.50 ± 0.03`` is the mean before the first iteration, then that after the last. A
    column stands where a run measured it.
    """
    score, _ = score_of(results[0]["final"]) or ("score", 0.0)

    def best(run: Record) -> float | None:
        found = score_of(best_of(run["evaluations"]))
        return None if found is None else found[1]

    columns: list[Column] = [
        (name, at_ends(value), f"mean {form} → {form}")
        for name, value, form in COLUMNS
        if is_measured(results, value)
    ]
    columns += [(f"best {score}", best, ".3f"), ("training seconds", number("seconds"), ".0f")]
    if any("peak_memory_gb" in result for result in results):
        columns.append(("peak memory, GB", number("peak_memory_gb"), ".2f"))
    return table_by("variant", results, columns)


def failed_table(points: Sequence[Point]) -> str:
    """Return the points that failed, with their error and their log, as Markdown; or nothing."""
    found = [(point, point.error()) for point in points if point.result() is None]
    rows = [
        [point.variant, str(point.seed), as_cell(error), f"`{point.folder / 'log.txt'}`"]
        for point, error in found
        if error is not None
    ]
    return as_markdown(["failed", "seed", "error", "log"], rows, num_text=4) if rows else ""


def as_cell(text: str, limit: int = 300) -> str:
    """Return a text as a cell of a table, cut to ``limit`` characters."""
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"`{text.replace('`', chr(39)).replace('|', '/')}`"


def write_report(path: Path, sweep: Sweep, folder: Path, against: str | None = None) -> str:
    """Write a sweep's tables and figure; return the tables.

    Args:
        path: the sweep file.
        sweep: what it says.
        folder: of ``README.md``, ``curves.png`` and ``results.jsonl``.
        against: the variant that the others are compared with; the first that has finished runs
            if left out.

    Raises:
        ValueError: if there is no such variant, no point that ended, or a README without a place
            for the tables.
    """
    if against is not None and against not in sweep.variants:
        raise ValueError(f"against: {against!r} is none of {', '.join(sweep.variants)}")
    # two processes may share a sweep
    with held(sweep.output / ".report.lock", wait_s=60.0) as lock:
        if lock is None:
            raise ValueError(
                f"{sweep.output}: another process has been writing its report for 60 s"
            )
        results = sweep.results()
        if not results and folder != sweep.output:
            results = read_records(folder / RAW)
        failed = failed_table(sweep.made())
        if not results and not failed:
            raise ValueError(f"{sweep.output}: no point is finished yet")
        wanted = {point.folder for point in (*sweep.points(), *sweep.made())}
        blocks = [f"{len(results)} of {len(wanted)} runs finished."]
        if results:
            last = max(result["final"]["iteration"] for result in results)
            errors = "mean ± standard error over seeds"
            blocks = [f"After {last} iterations; {errors}; {blocks[0]}", as_table(results)]
            blocks.append(paired_table(results, against))
            blocks.append(all_pairs(results))
        block = "\n\n".join(block for block in (*blocks, failed) if block)
        readme = folder / "README.md"
        text = readme.read_text() if readme.exists() else new_readme(path)
        figures = {"curves.png": draw(results, models_of(sweep))} if results else {}
        for figure in figures.values():
            relabel(figure, sweep.labels)
        write_into(readme, block, figures, results, text)
    return f"{block}\n\nwritten to {readme}"


def new_readme(path: Path) -> str:
    """Return a README for a sweep file: its name, what its comments say first, and the command."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), path.read_text().splitlines())
    said = "\n".join(line.removeprefix("#").strip() for line in lines)
    command = f"```bash\npython -m experiments {path}\n```"
    parts = [f"# {path.resolve().parent.name}", said, command, f"## Results\n\n{START}\n{END}\n"]
    return "\n\n".join(part for part in parts if part)
