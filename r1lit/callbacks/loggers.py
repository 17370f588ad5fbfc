"""Loggers: the numbers of a run that they get, and at which step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.loggers import Logger

from r1lit.callbacks import keys
from r1lit.callbacks.base import finished_iterations

_DETAIL = re.compile(
    r"epoch$|time/(?:(?:grade|sync|wait|environment)_s$|evaluation_)|memory/|(train|val|test)/("
    r"reflection/(?!per_response$)|groups/(?!mixed$)|length/(p90|max|right|wrong|thinking_share)$"
    r"|mismatch/(?!k3_kl$)|verifier/|num_|pass_at_\d+/|pass_at_1_of_kind/|pass_at_(?!1(_stderr)?$)"
    r"|reward_std$|covariance/top_20?_)"
)
_CONS = re.compile(rf"(val|test)/{keys.CONS_AT}(\d+)$")


def main_scalars(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics without details: words, sources, percentiles, all k but the largest.

    >>> main_scalars({"train/loss": 1, "train/length/p90": 2, "val/cons_at_2": 3})
    {'train/loss': 1, 'val/cons_at_2': 3}
    >>> main_scalars({"val/cons_at_2": 3, "val/cons_at_4": 4})
    {'val/cons_at_4': 4}
    """
    votes = [match for key in metrics if (match := _CONS.match(key))]
    last = max((int(match[2]) for match in votes), default=0)
    fewer = {match[0] for match in votes if int(match[2]) < last}
    return {k: v for k, v in metrics.items() if k not in fewer and not _DETAIL.match(k)}


def log_by_iteration(logger: Logger, trainer: pl.Trainer, every_number: bool = False) -> None:
    """Have ``logger`` count finished iterations as its steps, as ``summary.json`` does.

    Lightning's step of an evaluation after n iterations is n - 1. Unless ``every_number``, main
    scalars alone are logged; files in the run folder keep every number.
    """
    log_metrics = logger.log_metrics

    def log_some(metrics: Mapping[str, Any], step: int | None = None) -> None:
        some = dict(metrics) if every_number else main_scalars(metrics)
        if trainer.state.fn == "fit":
            step = finished_iterations(trainer, trainer.lightning_module)
        if some:
            log_metrics(some, step)

    logger.log_metrics = log_some  # type: ignore[method-assign]
