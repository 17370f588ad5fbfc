"""Asynchronous iterations: rollouts generated before the iterations that train on them.

With a ``max_staleness`` of k the rollout of iteration i is generated with the weights before the
updates of iteration i - k. Rollouts of the first k + 1 iterations are generated with the initial
weights. An engine that runs ``beside updates`` generates while an iteration updates. Any other
engine generates at once: the rollout is equally stale, and no time is saved.

An engine that runs ``through updates`` takes each iteration's weights while it generates. So tokens
of one response may be of several versions, at most k iterations old.

B rows   T response tokens
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from r1lit.batches import PromptBatch, Rollout
from r1lit.collect.base import Collector
from r1lit.data.loaders import shard
from r1lit.errors import check_at_least
from r1lit.ranks import num_ranks, of_all_ranks, own_rank, warn_on_first_rank
from r1lit.rollout import Completion, RolloutEngine
from r1lit.rollout.grading import BackgroundGrading
from r1lit.rollout.stored_completions import as_tensors, completions_of
from r1lit.rollout.worker import RolloutWorker, Timings
from r1lit.steps.base import Run


@dataclass(frozen=True, kw_only=True)
class Pending:
    """An iteration's completions, which may still be generated, and their grading if it began."""

    completions: futures.Future[list[Completion]]
    grading: BackgroundGrading | None = None

    def kept(self) -> list[Completion]:
        """Return the completions with the verdicts that there are already."""
        decided = {} if self.grading is None else self.grading.decided()
        completions = self.completions.result()
        return [
            replace(c, verdict=decided.get(row, c.verdict)) for row, c in enumerate(completions)
        ]


class Ahead(Collector):
    """Trains on rollouts that were generated some iterations before.

    An engine that has its own copy of the weights generates while earlier iterations update. The
    step ``r1lit.steps.Correction`` weighs tokens for what the weights differ.

    Args:
        max_staleness: how many iterations before its own a rollout is generated.
    """

    is_fresh = False

    def __init__(self, max_staleness: int = 1) -> None:
        check_at_least("max_staleness", max_staleness, 1, "r1lit.collect.Fresh has none")
        self.max_staleness = max_staleness
        self._by_iteration: dict[int, Pending] = {}
        self._thread: threading.Thread | None = None

    def check(self, run: Run) -> None:
        """Check that data and engine can generate ahead, and warn where nothing corrects for it."""
        key = f"model.collector.max_staleness: {self.max_staleness}"
        if run.engine.capabilities.runs == "in turns":
            raise ValueError(
                f"{key} generates during updates, when an engine with sleep: true sleeps; take"
                " r1lit.collect.Fresh, or set sleep to false"
            )
        if run.data is None:
            raise ValueError(
                f"{key} takes prompts ahead from the data module, and trainer.fit was given none;"
                " pass datamodule=, or take r1lit.collect.Fresh"
            )
        if not any("weight_BT" in step.writes for step in run.steps):
            warn_on_first_rank(
                f"{key} without a correction leaves responses of older weights to the objective's"
                " clip alone; put r1lit.steps.Correction into model.steps"
            )

    @contextmanager
    def generating(self, batch: PromptBatch, run: Run, timings: Timings) -> Iterator[None]:
        """Wait for the engine, then let groups be made, then begin those of later iterations.

        An engine holds one set of weights and generates for one caller at a time. One that
        runs ``through updates`` continues while it is given new weights.
        """
        if run.engine.capabilities.runs != "through updates":
            timings.add_wait(self.wait())
        with run.whole_weights_for_sampling():
            yield
            self._generate_ahead(batch.iteration, run, timings)

    def groups(
        self, batch: PromptBatch, prompts: Sequence[int], run: Run, timings: Timings
    ) -> Rollout:
        """Return the batch's rollout: the one generated ahead, or else one generated now.

        What is generated ahead is of the batch's first P prompts, which are asked for first.
        """
        worker = run.worker(run.sampling_at(batch.iteration), run.seed, training=True)
        pending = self._by_iteration.pop(batch.iteration, None)
        if pending is None:
            timings.add_wait(self.wait())
            return worker.collect(batch, prompts, timings)
        started = time.perf_counter()
        completions = pending.completions.result()
        timings.add_wait(time.perf_counter() - started)
        return worker.grade(completions, batch, prompts, timings, pending.grading)

    def metrics(self, rollout: Rollout, run: Run) -> dict[str, float]:
        """Return how many updates a rollout's weights are older than the engine's present ones.

        NaN where the engine does not name them.
        """
        mean = largest = math.nan
        now, version_BT = run.engine.version, rollout.version_BT
        if now is not None and version_BT is not None:
            named_N = version_BT[rollout.mask_BT & (version_BT >= 0)]
            if len(named_N):
                mean, largest = now - float(named_N.double().mean()), float(now - named_N.min())
        return {"train/staleness/mean": mean, "train/staleness/max": largest}

    def _generate_ahead(self, iteration: int, run: Run, timings: Timings) -> None:
        """Begin the rollouts of the next ``max_staleness`` iterations, as far as the run goes."""
        started = time.perf_counter()
        worker = run.worker(run.sampling_at(iteration), run.seed, training=True)
        later = range(iteration + 1, iteration + 1 + self.max_staleness)
        batches = [
            (replace(worker, sampling=run.sampling_at(i)), run.batch_of(i))
            for i in later
            if run.has_iteration(i)
        ]
        self.begin(worker.engine, batches)
        timings.rollout += time.perf_counter() - started

    def begin(
        self, engine: RolloutEngine, batches: Iterable[tuple[RolloutWorker, PromptBatch]]
    ) -> None:
        """Generate the rollouts that batches lack; in a thread where the engine may.

        Those that a checkpoint has kept are graded from now on.
        """
        begun = []
        for worker, batch in batches:
            prompts = range(batch.num_prompts)
            kept = self._by_iteration.get(batch.iteration)
            if kept is not None and kept.grading is None:
                grading = worker.grading(batch, prompts)
                completions = kept.completions.result()
                for row, completion in enumerate(completions):
                    grading.begin([row], [completion])
                self._by_iteration[batch.iteration] = replace(kept, grading=grading)
            elif kept is None:
                grading = worker.grading(batch, prompts)
                pending = Pending(completions=futures.Future(), grading=grading)
                self._by_iteration[batch.iteration] = pending
                begun.append((worker.requests(batch, prompts, batch.iteration), pending, grading))

        previous = self._thread

        def generate() -> None:
            if previous is not None:
                previous.join()  # an engine generates for one caller at a time
            try:
                for requests, pending, grading in begun:
                    pending.completions.set_result(engine.generate(requests, grading.begin))
            except BaseException as error:  # raised where it is waited for
                for _, pending, _ in begun:
                    if not pending.completions.done():
                        pending.completions.set_exception(error)

        if engine.capabilities.in_background:
            # a daemon: a run that fails must not wait for responses that nobody trains on
            self._thread = threading.Thread(target=generate, daemon=True, name="generate-ahead")
            self._thread.start()
        else:
            generate()
            self.wait()

    def wait(self) -> float:
        """Wait until all generation under way has ended; return the seconds that it took.

        Raises:
            Exception: of the engine.
        """
        started = time.perf_counter()
        for pending in self._by_iteration.values():
            pending.completions.result()
        return time.perf_counter() - started

    def state(self) -> dict[int, dict[str, Tensor]]:
        """Return the completions of all ranks by iteration, for a checkpoint, once all are there.

        Verdicts that are there are kept; others are not waited for. All ranks call it.
        """
        self.wait()
        own = {
            iteration: as_tensors(pending.kept())
            for iteration, pending in self._by_iteration.items()
        }
        ranks = of_all_ranks(own)
        return {
            i: {name: torch.cat([rank[i][name] for rank in ranks]) for name in packed}
            for i, packed in own.items()
        }

    def load(self, state: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Take this rank's share of what ``state`` returned, on any number of ranks."""
        self.close()
        rank, world_size = own_rank(), num_ranks()
        for iteration, packed in state.items():
            done: futures.Future[list[Completion]] = futures.Future()
            done.set_result(list(shard(completions_of(packed), rank, world_size)))
            self._by_iteration[iteration] = Pending(completions=done)

    def close(self) -> None:
        """Drop everything, once nothing is generated any more."""
        futures.wait([pending.completions for pending in self._by_iteration.values()])
        self._by_iteration.clear()
