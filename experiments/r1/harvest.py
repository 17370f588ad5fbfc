"""What a step's folder tells: tokens and scores."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from r1lit.files import read_records


def tokens_of(folder: Path | None) -> int | None:
    """Return the tokens a step sampled or was trained on, or None if its folder does not say.

    Of a training run, the sum of ``train/num_tokens`` over iterations (response tokens in
    reinforcement learning, targets in supervised training); of an evaluation, its responses'.
    """
    if folder is None:
        return None
    if (folder / "metrics.jsonl").is_file():
        lines = read_records(folder / "metrics.jsonl")
        counts = [line["train/num_tokens"] for line in lines if "train/num_tokens" in line]
    else:
        lines = read_records(folder / "responses.jsonl")
        counts = [line["num_tokens"] for line in lines if "num_tokens" in line]
    return int(sum(counts)) if counts else None


def scores_of(folder: Path | None, wanted: dict[str, str]) -> dict[str, float]:
    """Return the numbers a step is known by: those ``wanted``, else the folder's last evaluation.

    ``wanted`` maps a name to ``file.json:dotted.key``; list items are named by their index.
    """
    if wanted:
        found = {name: _number_at(spec) for name, spec in wanted.items()}
        return {name: value for name, value in found.items() if value is not None}
    if folder is None:
        return {}
    report = _read(folder / "report.json")
    if isinstance(report, dict):
        return _report_scores(report)
    summary = _read(folder / "summary.json")
    last = summary[-1] if isinstance(summary, list) and summary else summary
    return _numbers(last) if isinstance(last, dict) else {}


def _report_scores(report: dict[str, Any]) -> dict[str, float]:
    accuracy = report.get("pass_at_1") or {}
    numbers = {
        "pass_at_1": accuracy.get("value"),
        "pass_at_1_stderr": accuracy.get("stderr"),
        "num_samples": report.get("num_samples"),
        "num_problems": report.get("num_problems"),
        **(report.get("eval_metrics") or {}),
    }
    return _numbers(numbers)


def _numbers(record: dict[str, Any]) -> dict[str, float]:
    return {
        key: value
        for key, value in record.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.is_file() else None


def _number_at(spec: str) -> float | None:
    file, _, keys = spec.partition(":")
    node = _read(Path(file))
    for key in filter(None, keys.split(".")):
        if isinstance(node, dict):
            node = node.get(key)
        elif isinstance(node, list) and key.lstrip("-").isdigit() and -len(node) <= int(key):
            node = node[int(key)] if int(key) < len(node) else None
        else:
            return None
    return float(node) if isinstance(node, int | float) else None
