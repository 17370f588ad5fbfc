"""Rollouts of the present weights."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.batches import PromptBatch, Rollout
from r1lit.collect.base import Collector
from r1lit.rollout.worker import Timings
from r1lit.steps.base import Run


class Fresh(Collector):
    """Generates an iteration's responses with the weights before its updates; the default."""

    def check(self, run: Run) -> None:
        """Refuse an engine that is set up to generate while weights change."""
        if run.engine.capabilities.runs == "through updates":
            raise ValueError(
                "engine.in_flight_updates: true is for rollouts that are generated ahead, and"
                " model.collector is Fresh; take r1lit.collect.Ahead"
            )

    def groups(
        self, batch: PromptBatch, prompts: Sequence[int], run: Run, timings: Timings
    ) -> Rollout:
        """Return a rollout of some of the batch's prompts."""
        worker = run.worker(run.sampling_at(batch.iteration), run.seed, training=True)
        return worker.collect(batch, prompts, timings)
