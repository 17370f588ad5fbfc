"""A report as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KS = (1, 2, 4, 8, 16, 32, 64, 128)
"""The k in Markdown; JSON has every k."""


def as_markdown(report: Mapping[str, Any], title: str) -> str:
    """Return a report of `r1lit.evaluation.report.summarise` as Markdown.

    Shares are in per cent; 95 % intervals over problems stand in brackets.
    """
    lines = [
        f"# {title}",
        "",
        f"{report['num_problems']} problems, {report['num_samples']} responses each. Per cent, with"
        " standard errors and 95 % bootstrap intervals over problems.",
        "",
        *accuracy_rows(report),
    ]
    if "elo" in report:
        elo = report["elo"]
        lines.append(
            f"| Elo, {elo['method']} | {elo['value']:.0f} | | {elo['low']:.0f} to"
            f" {elo['high']:.0f} |"
        )
    for key, groups in report["by"].items():
        if len(groups) > 1 or key != "source":
            lines += [
                _row(f"pass@1, {key} {name} ({group['num_problems']})", group)
                for name, group in groups.items()
            ]
    lines += ["", "| responses | |", "|---|---|"]
    length, verdicts = report["response_length"], report["verdicts"]
    lines += [
        f"| length in tokens, mean (median, 90th percentile, longest) | {_number(length['mean'])}"
        f" ({_number(length['median'])}, {_number(length['p90'])}, {length['max']}) |",
        f"| length, right / wrong | {_number(length['right'])} / {_number(length['wrong'])} |",
        f"| truncated | {_percent(report['truncated'])} |",
    ]
    if "search" in report:
        tokens = _number(report["search"]["num_tokens"])
        lines.append(f"| tokens generated for a response by its search, mean | {tokens} |")
    lines += [f"| {name} | {_percent(value)} |" for name, value in report["eval_metrics"].items()]
    lines += [f"| verdict: {status} | {count} |" for status, count in verdicts.items()]
    lines += ["", "| settings | |", "|---|---|"]
    lines += [f"| {key} | {_cell(value)} |" for key, value in report["settings"].items()]
    if report["reasons"]:
        lines += ["", "| not right because | responses |", "|---|---|"]
        lines += [
            f"| {r['status']}: {_cell(r['reason'])} | {r['count']} |" for r in report["reasons"]
        ]
    return "\n".join(lines) + "\n"


def accuracy_rows(report: Mapping[str, Any]) -> list[str]:
    """Return the table of pass@1, pass@k and cons@k as lines, with its heading."""
    num_samples = report["num_samples"]
    lines = [
        "| | value | standard error | 95 % interval |",
        "|---|---|---|---|",
        _row("pass@1", report["pass_at_1"]),
    ]
    for name, key in (("pass", "pass_at_k"), ("cons", "cons_at_k")):
        shown = [k for k in KS if 1 < k < num_samples] + [num_samples] * (num_samples > 1)
        lines += [_row(f"{name}@{k}", report[key][str(k)]) for k in shown]
    return lines


def _row(name: str, estimate: Mapping[str, Any]) -> str:
    stderr = _percent(estimate["stderr"]) if "stderr" in estimate else ""
    interval = (
        f"{_percent(estimate['low'])} to {_percent(estimate['high'])}"
        if estimate["low"] is not None
        else "–"
    )
    return f"| {_cell(name)} | {_percent(estimate['value'])} | {stderr} | {interval} |"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _cell(value: Any) -> str:
    return " ".join(str(value).replace("|", "\\|").split())
