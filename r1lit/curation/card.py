"""The data card: what is in the data, what was left out and why, and where it comes from."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from r1lit.curation.tally import GROUPS, Tally

KEPT, DROPPED = "#0072B2", "#E69F00"  # Okabe and Ito's palette


def write_card(folder: Path, tally: Tally, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Write ``card.json``, ``card.md`` and ``lengths.png`` into ``folder``; return the card.

    Raises:
        ValueError: if a file cannot be written.
    """
    card = {**tally.numbers(), "settings": dict(settings)}
    try:
        _replace(
            folder / "card.json", (json.dumps(card, indent=1, ensure_ascii=False) + "\n").encode()
        )
        _replace(folder / "card.md", as_markdown(card).encode())
        temporary = folder / ".lengths.png.tmp"
        draw_lengths(tally).savefig(temporary, format="png", metadata={"Software": None})
        os.replace(temporary, folder / "lengths.png")
    except OSError as error:
        raise ValueError(f"dirpath: {folder} cannot be written ({error.strerror})") from error
    return card


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def as_markdown(card: Mapping[str, Any]) -> str:
    """Return the card to be read."""
    drawn, kept = card["num_drawn"], card["num_kept"]
    text = [
        "# Data card",
        "",
        f"{kept} of {drawn} responses to {card['num_problems']} problems are kept"
        f" ({_percent(kept, drawn)}).",
        "",
        "## What is in it",
        "",
        "| | | drawn | kept | share |",
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
        "## What was dropped, in the order of the filters",
        "",
        "| stage | filter | came to it | dropped | share | by kind |",
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
    text += ["", "## Responses kept of a problem", "", "| kept | problems |", "|---|---|"]
    text += [f"| {n} | {problems} |" for n, problems in card["kept_per_problem"].items()]
    text += ["", "## Settings", "", "```json"]
    text += [json.dumps(card["settings"], indent=1, ensure_ascii=False), "```", ""]
    return "\n".join(text)


def one_line(card: Mapping[str, Any]) -> str:
    """Return what a terminal is told."""
    losses = ", ".join(
        f"{loss['filter']} {loss['dropped']}" for loss in card["losses"] if loss["dropped"]
    )
    return (
        f"rejection sampling: kept {card['num_kept']} of {card['num_drawn']} responses to"
        f" {card['num_problems']} problems; dropped by {losses or 'nothing'}"
    )


def draw_lengths(tally: Tally) -> Figure:
    """Return a histogram of the lengths of responses kept and dropped."""
    figure = Figure(figsize=(7, 3.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    kept, dropped = tally.lengths["kept"], tally.lengths["dropped"]
    axes.hist([kept, dropped], bins=40, stacked=True, color=[KEPT, DROPPED],
              label=[f"kept ({len(kept)})", f"dropped ({len(dropped)})"])  # fmt: skip
    axes.set(xlabel="tokens of a response", ylabel="responses", title="Lengths, kept and dropped")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
