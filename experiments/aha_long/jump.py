"""Second table of the page: before and after the token limit grows, and where it stays."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.sweep import Sweep
from experiments.tables import (
    OVER_SEEDS,
    RULE,
    Measure,
    as_markdown,
    by_seed,
    cons_at_most,
    group_by,
    mean_cell,
    number,
    seed_cells,
)
from r1lit.files import Record
from r1lit.metrics import mean
from r1lit.worlds.search_corpus import LEVELS, level_of

MARKS = ("<!-- jump -->", "<!-- /jump -->")
RAW = "jump.jsonl"
GROWS, STAYS = "grows", "stays"


def count(sweep: Sweep) -> list[Record]:
    """Return a record for each finished run and measure.

    ``start`` is its first evaluation; ``before`` the last one before the limit of ``grows`` grows;
    ``after`` the mean over all evaluations after that.

    Raises:
        ValueError: if no point is finished.
    """
    results = [result for result, _ in sweep.finished()]
    grows_at = max(sweep.point(GROWS, 0).config["model"]["init_args"]["max_tokens_from"])
    asked = results[0]["final"]["pass_at_1_by_kind"]
    levels = [level for low, _ in LEVELS if (level := level_of(low)) in asked]
    measures: dict[str, Measure] = {
        "pass@1": number("pass_at_1"),
        **{f"pass@1, {level}": number("pass_at_1_by_kind", level) for level in levels},
        "cons@k": cons_at_most,
        "tokens per response": number("response_length_tokens"),
        "reflection words per response": number("reflection_words_per_response"),
    }
    records: list[Record] = []
    for result in results:
        evaluations = result["evaluations"]
        before = [e for e in evaluations if e["iteration"] <= grows_at]
        for name, value in measures.items():
            after = [value(e) for e in evaluations if e["iteration"] > grows_at]
            records.append({
                "variant": result["variant"], "seed": result["seed"], "measure": name,
                "start": value(before[0]), "before": value(before[-1]),
                "after": mean([v for v in after if v is not None]),
            })  # fmt: skip
    return records


def as_table(records: Sequence[Record]) -> str:
    """Return the Markdown table: a row a measure, and what the growth of the limit adds to it.

    Differences are by the rule of every page; a dash stands where there are fewer than two seeds.
    """
    rows, shifts = [], []
    for name, own in group_by("measure", records).items():
        form = ".3f" if "@" in name else ".1f" if "words" in name else ".0f"
        grows, stays = ([r for r in own if r["variant"] == v] for v in (GROWS, STAYS))
        cells = [[run[when] for run in grows] for when in ("start", "before", "after")]
        cells.append([run["after"] for run in stays])
        rows.append([name, *(mean_cell(values, form) for values in cells)])
        shifts.append(by_seed(grows, stays, number("after")))
    rows = [row + tested for row, tested in zip(rows, seed_cells(shifts, ".3g"), strict=True)]
    names = ["", "the base", "before", "after, grows", "after, stays"]
    return f"{as_markdown([*names, *OVER_SEEDS], rows)}\n\n{RULE}"
