"""The data card of a curation: counts, losses by filter, lengths, and its figure."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from r1lit.curation.candidate import Candidate
from r1lit.files import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from r1lit.curation.curation import Curation


PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
GROUPS = ("source", "kind", "language")


class CurationStats:
    """Counts of responses generated, kept and dropped, and the lengths of each in tokens.

    A dropped response has the length of its text when it was dropped, a kept one as written.
    """

    def __init__(self, curation: Curation) -> None:
        self.curation = curation
        self.num_generated = self.num_kept = self.num_dropped = 0
        self.lengths: dict[str, list[int]] = {"drawn": [], "kept": [], "dropped": []}
        self._groups: dict[str, dict[str, Counter[str]]] = {
            group: {"drawn": Counter(), "kept": Counter()} for group in GROUPS
        }
        self._kept_of: dict[str, int] = {}
        self._losses: dict[tuple[str, str], dict[str, Any]] = {}

    def count_generated(self, candidate: Candidate) -> None:
        """Count a generated response."""
        self.num_generated += 1
        self.lengths["drawn"].append(candidate.num_tokens)
        self._kept_of.setdefault(candidate.problem.uid, 0)
        self._count("drawn", candidate)

    def count_kept(self, candidate: Candidate) -> None:
        """Count a kept response."""
        self.num_kept += 1
        self.lengths["kept"].append(candidate.num_tokens)
        self._kept_of[candidate.problem.uid] += 1
        self._count("kept", candidate)

    def count_dropped(self, stage: str, name: str, candidate: Candidate) -> None:
        """Count a response that filter ``name`` dropped."""
        self.num_dropped += 1
        self.lengths["dropped"].append(candidate.num_tokens)
        loss = self._losses.setdefault((stage, name), _no_loss())
        loss["dropped"] += 1
        loss["by_kind"][candidate.kind] += 1

    def count_input(self, stage: str, name: str, candidates: Sequence[Candidate]) -> None:
        """Count the candidates that a filter was applied to."""
        self._losses.setdefault((stage, name), _no_loss())["seen"] += len(candidates)

    def _count(self, what: str, candidate: Candidate) -> None:
        self._groups["source"][what][candidate.problem.source] += 1
        self._groups["kind"][what][candidate.kind] += 1
        self._groups["language"][what][candidate.language] += 1

    def numbers(self) -> dict[str, Any]:
        """Return all statistics under the names of the data card."""
        per_problem = Counter(self._kept_of.values())
        return {
            "num_problems": len(self._kept_of),
            "num_drawn": self.num_generated,
            "num_kept": self.num_kept,
            "num_dropped": self.num_dropped,
            **{
                f"by_{group}": {
                    name: {"drawn": drawn, "kept": counts["kept"][name]}
                    for name, drawn in sorted(counts["drawn"].items())
                }
                for group, counts in self._groups.items()
            },
            "losses": [
                {
                    "stage": stage,
                    "filter": name,
                    "seen": loss["seen"],
                    "dropped": loss["dropped"],
                    "by_kind": dict(sorted(loss["by_kind"].items())),
                }
                for (stage, name), loss in self._losses.items()
            ],
            "lengths": {what: _percentiles(found) for what, found in self.lengths.items()},
            "kept_per_problem": {str(n): per_problem[n] for n in sorted(per_problem)},
        }


def _no_loss() -> dict[str, Any]:
    return {"seen": 0, "dropped": 0, "by_kind": Counter()}


def _percentiles(lengths: Sequence[int]) -> dict[str, float] | None:
    if not lengths:
        return None
    values = np.percentile(np.asarray(lengths), PERCENTILES)
    named = {f"p{p}": round(float(v), 1) for p, v in zip(PERCENTILES, values, strict=True)}
    return {"mean": round(float(np.mean(lengths)), 1), **named, "total": int(np.sum(lengths))}


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
        plot_lengths(stats).savefig(image, format="png", metadata={"Software": None})
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


def plot_lengths(stats: CurationStats) -> Figure:
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
