"""The table of an evaluation of several suites, in their order, with intervals and deviations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from r1lit.evaluation.suites import Suite


def summary(
    suites: Sequence[Suite],
    reports: Mapping[str, Mapping[str, Any]],
    absent: Mapping[str, str],
    settings: Mapping[str, Any],
    notes: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Return ``report.json`` of the whole: a row a suite, from the suites' own reports.

    Args:
        suites: in the table's order.
        reports: of those that ran, by name.
        absent: why the others did not.
        settings: what all responses depend on.
        notes: which parts of a suite are left out and why, by name.
    """
    rows = []
    for suite in suites:
        row: dict[str, Any] = {"suite": suite.name, "title": suite.title}
        if suite.name in reports:
            report = reports[suite.name]
            row |= {key: report[key] for key in ("score", "num_problems", "num_samples")}
            if "agreement" in report:
                row["agreement"] = report["agreement"]
            row |= {"truncated": report["truncated"], "k_of_paper": suite.responses}
        else:
            row["left_out"] = absent.get(suite.name, "not run")
        own = [*suite.deviations, *notes.get(suite.name, ())]
        rows.append(row | {"deviations": own})
    return {"suites": rows, "settings": dict(settings)}


def as_table(report: Mapping[str, Any], title: str) -> str:
    """Return ``summary`` as Markdown."""
    sampling = report["settings"]["sampling"]
    lines = [
        f"# {title}",
        "",
        "Value and 95 % interval (bootstrap over problems); the last column numbers notes below.",
        f"Temperature {sampling['temperature']}, top-p {sampling['top_p']}, at most"
        f" {sampling['max_tokens']} tokens; the paper: 0.6, 0.95, 32768.",
        "",
        "| suite | metric | value | 95 % interval | problems × responses | deviates |",
        "|---|---|---:|---|---:|---|",
    ]
    notes: list[str] = []
    for row in report["suites"]:
        own = list(row["deviations"])
        if "left_out" in row:
            lines.append(f"| {row['title']} | – | – | – | – | left out |")
            notes.append(f"{row['title']} is left out: {row['left_out']}")
            continue
        if row["num_samples"] != row["k_of_paper"]:
            own.append(f"{row['num_samples']} responses a problem, not {row['k_of_paper']}")
        if found := row.get("agreement"):
            own.append(
                f"the judge agrees with {100 * found['agreement']:.0f} % of"
                f" {found['num_examples']} graded answers (kappa {found['kappa']:.2f})"
            )
        marks = []
        for deviation in own:
            notes.append(f"{row['title']}: {deviation}")
            marks.append(str(len(notes)))
        score = row["score"]
        low, high = score["low"], score["high"]
        interval = "–" if low is None else f"{shown(score, low)} to {shown(score, high)}"
        lines.append(
            f"| {row['title']} | {score['name']} | {shown(score, score['value'])} | {interval} |"
            f" {row['num_problems']} × {row['num_samples']} | {', '.join(marks) or 'no'} |"
        )
    numbered = [f"{n}. {' '.join(note.split())}" for n, note in enumerate(notes, start=1)]
    return "\n".join([*lines, "", *numbered]) + "\n"


def shown(score: Mapping[str, Any], value: float | None) -> str:
    """Return a value as the table has it: shares in per cent, ratings as they are."""
    if value is None:
        return "–"
    return f"{value:.0f}" if score.get("unit") == "rating" else f"{100 * value:.1f}"


def page(suites: Sequence[Suite]) -> str:
    """Return the table of docs/EVALUATION.md: where each suite comes from."""
    lines = [
        "| suite | k | local file | licence of the data | prompt | grader | sample tested |",
        "|---|---:|---|---|---|---|---|",
    ]
    for suite in suites:
        lines.append(
            f"| `{suite.name}` | {suite.responses} | `{suite.file}` | {suite.licence} |"
            f" {suite.prompt} | {suite.grading} | {suite.sample} |"
        )
    return "\n".join(lines) + "\n"


def page_of_deviations(suites: Sequence[Suite]) -> str:
    """Return the list of docs/DEVIATIONS.md, a heading a suite."""
    lines = []
    for suite in suites:
        if suite.deviations:
            notes = [f"- {' '.join(note.split())}" for note in suite.deviations]
            lines += [f"## {suite.name}", "", *notes, ""]
    return "\n".join(lines)
