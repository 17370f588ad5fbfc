"""The data card: counts, what was dropped and why, lengths and settings."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r1lit.curation.stats import GROUPS, CurationStats
from r1lit.files import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEPT, DROPPED = "#0072B2", "#E69F00"  # Okabe and Ito's palette


def write_card(folder: Path, stats: CurationStats, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Write ``card.json``, ``card.md`` and ``lengths.png`` into ``folder``; return the card.

    Raises:
        ValueError: if a file cannot be written.
    """
    card = {**stats.numbers(), "settings": dict(settings)}
    try:
        written = json.dumps(card, indent=1, ensure_ascii=False) + "\n"
        replace_file(folder / "card.json", written.encode())
        replace_file(folder / "card.md", as_markdown(card).encode())
        image = io.BytesIO()
        draw_lengths(stats).savefig(image, format="png", metadata={"Software": None})
        replace_file(folder / "lengths.png", image.getvalue())
    except OSError as error:
        raise ValueError(f"dirpath: {folder} cannot be written ({error.strerror})") from error
    return card


def as_markdown(card: Mapping[str, Any]) -> str:
    """Return the card as Markdown."""
    generated, kept = card["num_drawn"], card["num_kept"]
    text = [
        "# Data card",
        "",
        f"{kept} of {generated} responses to {card['num_problems']} problems are kept"
        f" ({_percent(kept, generated)}).",
        "",
        "## What is in it",
        "",
        "| | | generated | kept | share |",
        "|---|---|---|---|---|",
    ]
    for group in GROUPS:
        for name, counts in card[f"by_{group}"].items():
            text.append(
                f"| {group} | {_cell(name)} | {counts['drawn']} | {counts['kept']} |"
                f" {_percent(counts['kept'], counts['drawn'])} |"
            )
    text += [
        "",
        "## Dropped, in the order of the filters",
        "",
        "| stage | filter | input | dropped | share | by kind |",
        "|---|---|---|---|---|---|",
    ]
    for loss in card["losses"]:
        kinds = ", ".join(f"{_cell(kind)} {n}" for kind, n in loss["by_kind"].items())
        text.append(
            f"| {loss['stage']} | {loss['filter']} | {loss['seen']} | {loss['dropped']} |"
            f" {_percent(loss['dropped'], loss['seen'])} | {kinds} |"
        )
    text += ["", "## Lengths in tokens", ""]
    filled = {what: found for what, found in card["lengths"].items() if found}
    if filled:
        columns = list(next(iter(filled.values())))
        text += [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for what, found in filled.items():
            text.append(f"| {what} | " + " | ".join(f"{v:g}" for v in found.values()) + " |")
    text += ["", "## Responses kept by problem", "", "| kept | problems |", "|---|---|"]
    text += [f"| {n} | {problems} |" for n, problems in card["kept_per_problem"].items()]
    text += ["", "## Settings", "", "```json"]
    text += [json.dumps(card["settings"], indent=1, ensure_ascii=False), "```", ""]
    return "\n".join(text)


def one_line(card: Mapping[str, Any]) -> str:
    """Return the summary that is printed."""
    losses = ", ".join(
        f"{loss['filter']} {loss['dropped']}" for loss in card["losses"] if loss["dropped"]
    )
    return (
        f"rejection sampling: kept {card['num_kept']} of {card['num_drawn']} responses to"
        f" {card['num_problems']} problems; dropped by {losses or 'nothing'}"
    )


def draw_lengths(stats: CurationStats) -> Figure:
    """Return a histogram of the lengths of responses kept and dropped."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # not when a run starts
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7, 3.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    kept, dropped = stats.lengths["kept"], stats.lengths["dropped"]
    axes.hist([kept, dropped], bins=40, stacked=True, color=[KEPT, DROPPED],
              label=[f"kept ({len(kept)})", f"dropped ({len(dropped)})"])  # fmt: skip
    axes.set(xlabel="tokens of a response", ylabel="responses")
    axes.set_title("Lengths, kept and dropped", loc="left", fontweight="bold", fontsize=12)
    axes.grid(True, color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
