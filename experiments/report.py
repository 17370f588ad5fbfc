"""Reports a sweep: ``README.md`` with tables, and ``curves.png``, in its output folder.

    python -m experiments.report experiments/objectives/study.yaml [--against dapo] [--readme]

A sweep calls this at its end; by hand it shows what is there while a sweep still runs. A README
that is not there is made. Only points finished under the present sweep file count, and failed ones
are listed with their error. With ``--readme`` they go into the README beside the sweep file.

Numbers are mean ± standard error over seeds: the sample standard deviation over the root of their
number. All seeds are evaluated on the same problems, so this error is that of training anew, not
that of drawing other problems. Variants are compared in pairs (`experiments.tables`).

The results themselves are written beside the README, ``results.jsonl``; with ``--readme``
they are to be committed, and where no point is finished the report is made of them.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.curves import draw, models_of, relabel
from experiments.launch import reported
from experiments.page import END, RAW, START, write_into
from experiments.points import Point, Sweep, best_of, read_sweep, score_of
from experiments.tables import (
    Measure,
    all_pairs,
    as_markdown,
    cons_at_most,
    group_by,
    is_measured,
    mean_cell,
    number,
    paired_table,
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
README_HELP = "fill in the README beside the sweep file, to be committed, not the output folder's"


def as_table(results: Sequence[Record]) -> str:
    """Return the Markdown table: a row a variant, mean ± standard error over its n seeds.

    ``0.20 → 0.50 ± 0.03`` is the mean before the first iteration, then that after the last. A
    column stands where a run measured it.
    """
    columns = [column for column in COLUMNS if is_measured(results, column[1])]
    score, _ = score_of(results[0]["final"]) or ("score", 0.0)
    names = ["variant", "n seeds", *(name for name, _, _ in columns), f"best {score}"]
    names += ["training seconds"]
    with_memory = any("peak_memory_gb" in result for result in results)
    names += ["peak memory, GB"] if with_memory else []
    rows = []
    for variant, group in group_by("variant", results).items():
        cells = [variant, str(len(group))]
        for _, value, form in columns:
            before = mean_cell([value(r["evaluations"][0]) for r in group], form, error=False)
            after = mean_cell([value(r["final"]) for r in group], form)
            cells.append(f"{before} → {after}")
        best = [score_of(best_of(r["evaluations"])) for r in group]
        cells.append(mean_cell([None if b is None else b[1] for b in best], ".3f"))
        cells.append(mean_cell([r["seconds"] for r in group], ".0f"))
        if with_memory:
            cells.append(mean_cell([r.get("peak_memory_gb") for r in group], ".2f"))
        rows.append(cells)
    return as_markdown(names, rows)


def failed_table(points: Sequence[Point]) -> str:
    """Return the points that failed, with their error and their log, as Markdown; or nothing."""
    found = [(point, point.error()) for point in points if point.result() is None]
    lines = [
        f"| {point.variant} | {point.seed} | {as_cell(error)} | `{point.folder / 'log.txt'}` |"
        for point, error in found
        if error is not None
    ]
    if not lines:
        return ""
    head = ["| failed | seed | error | log |", "|---|---:|---|---|"]
    return "\n".join([*head, *lines])


def as_cell(text: str, limit: int = 300) -> str:
    """Return a text as a cell of a table, cut to ``limit`` characters."""
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"`{text.replace('`', chr(39)).replace('|', '/')}`"


def write_report(
    path: Path, sweep: Sweep, against: str | None = None, folder: Path | None = None
) -> str:
    """Write a sweep's tables and figure; return the tables.

    Args:
        path: the sweep file.
        sweep: what it says.
        against: the variant that the others are compared with; the first that has finished runs
            if left out.
        folder: of ``README.md``, ``curves.png`` and ``results.jsonl``; the output folder if left
            out.

    Raises:
        ValueError: if there is no such variant, or a README without a place for the tables.
    """
    if against is not None and against not in sweep.variants:
        raise ValueError(f"against: {against!r} is none of {', '.join(sweep.variants)}")
    folder = sweep.output if folder is None else folder
    # two processes may share a sweep
    with held(sweep.output / ".report.lock", wait_s=60.0) as lock:
        if lock is None:
            raise ValueError(
                f"{sweep.output}: another process has been writing its report for 60 s"
            )
        results = sweep.results()
        if not results and folder != sweep.output:
            results = read_records(folder / RAW)
        wanted = {point.folder for point in (*sweep.points(), *sweep.made())}
        blocks = [f"{len(results)} of {len(wanted)} runs finished."]
        if results:
            last = max(result["final"]["iteration"] for result in results)
            errors = "mean ± standard error over seeds"
            blocks = [f"After {last} iterations; {errors}; {blocks[0]}", as_table(results)]
            blocks.append(paired_table(results, against))
            blocks.append(all_pairs(results))
        blocks.append(failed_table(sweep.made()))
        block = "\n\n".join(block for block in blocks if block)
        readme = folder / "README.md"
        text = readme.read_text() if readme.exists() else new_readme(path)
        figure = draw(results, models_of(sweep)) if results else None
        if figure is not None:
            relabel(figure, sweep.labels)
        write_into(readme, block, figure, "curves.png", results, text)
    return f"{block}\n\nwritten to {readme}"


def new_readme(path: Path) -> str:
    """Return a README for a sweep file: its name, what its comments say first, and the command."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), path.read_text().splitlines())
    said = "\n".join(line.removeprefix("#").strip() for line in lines)
    command = f"```bash\npython -m experiments.sweep {path}\n```"
    parts = [f"# {path.resolve().parent.name}", said, command, f"## Results\n\n{START}\n{END}\n"]
    return "\n\n".join(part for part in parts if part)


@reported("report")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.report", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("sweep", type=Path, help="the sweep file")
    parser.add_argument("--readme", action="store_true", help=README_HELP)
    parser.add_argument("--against", help="the variant to compare the others with; else the first")
    options = parser.parse_args(args)
    sweep = read_sweep(options.sweep)
    folder = options.sweep.parent if options.readme else sweep.output
    kept = options.readme and (folder / RAW).exists()
    if not kept and not any(point.result() or point.error() for point in sweep.made()):
        raise ValueError(f"no point is finished: python -m experiments.sweep {options.sweep}")
    print(write_report(options.sweep, sweep, options.against, folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
