"""Asynchronous iterations: rollouts generated before the iterations that train on them.

With ``max_staleness: k`` the rollout of iteration i is generated with the weights from before the
updates of iteration i - k; those of the first k + 1 iterations with the weights that the run begins
with. An engine that works ``in_background`` generates while an iteration updates. Any other one
generates at once, which gains no time and is just as stale.

An engine with ``in_flight_updates`` takes each iteration's weights while it generates: the tokens
of one response may be of several versions, of k iterations before its own at most.

B rows   T response tokens
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch import distributed as dist

from r1lit.batches import PromptBatch, Rollout
from r1lit.data.loaders import shard
from r1lit.errors import check_at_least
from r1lit.modules.async_grading import AsyncGrading
from r1lit.modules.rollout_worker import RolloutWorker, Timings, collect_mixed
from r1lit.modules.rollouts import RolloutModule
from r1lit.modules.schedule import updates_of_run
from r1lit.objectives import Correction
from r1lit.rollout import Completion, RolloutEngine, Sampling
from r1lit.rollout.packing import pack_completions, unpack_completions

PENDING = "pending_rollouts"


@dataclass(frozen=True, kw_only=True)
class Pending:
    """An iteration's completions, which may still be generated, and their grading if it began."""

    completions: futures.Future[list[Completion]]
    grading: AsyncGrading | None = None


class PendingRollouts:
    """The rollouts of later iterations, generated or under way."""

    def __init__(self) -> None:
        self._by_iteration: dict[int, Pending] = {}
        self._thread: threading.Thread | None = None

    def begin(
        self, engine: RolloutEngine, batches: Iterable[tuple[RolloutWorker, PromptBatch]]
    ) -> None:
        """Generate the rollouts that batches lack; in a thread where the engine may."""
        begun = []
        for worker, batch in batches:
            if batch.iteration not in self._by_iteration:
                prompts = range(batch.num_prompts)
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

        if engine.in_background:
            # a daemon: a run that fails must not wait for responses that nobody trains on
            self._thread = threading.Thread(target=generate, daemon=True, name="generate-ahead")
            self._thread.start()
        else:
            generate()
            self.wait()

    def wait(self) -> None:
        """Return once nothing is generated any more.

        Raises:
            Exception: of the engine.
        """
        for pending in self._by_iteration.values():
            pending.completions.result()

    def collect(
        self,
        worker: RolloutWorker,
        batch: PromptBatch,
        prompt_indices: Sequence[int],
        timings: Timings,
    ) -> Rollout:
        """Return the batch's rollout: the one generated ahead, or else one generated now.

        What is generated ahead is of the batch's first P prompts, which are requested first.
        """
        pending = self._by_iteration.pop(batch.iteration, None)
        started = time.perf_counter()
        if pending is None:
            self.wait()
            timings.rollout += time.perf_counter() - started
            return worker.collect(batch, prompt_indices, timings)
        completions = pending.completions.result()
        timings.rollout += time.perf_counter() - started
        return worker.grade(completions, batch, prompt_indices, timings, pending.grading)

    def state(self) -> dict[int, dict[str, Tensor]]:
        """Return the completions of all ranks by iteration, for a checkpoint, once all are there.

        All ranks call it.
        """
        self.wait()
        own = {
            iteration: pack_completions(pending.completions.result())
            for iteration, pending in self._by_iteration.items()
        }
        ranks = _of_all_ranks(own)
        return {
            i: {name: torch.cat([rank[i][name] for rank in ranks]) for name in packed}
            for i, packed in own.items()
        }

    def load(self, state: Mapping[int, Mapping[str, Tensor]], rank: int, world_size: int) -> None:
        """Take this rank's share of what ``state`` returned, on any number of ranks."""
        self.close()
        for iteration, packed in state.items():
            done: futures.Future[list[Completion]] = futures.Future()
            done.set_result(list(shard(unpack_completions(packed), rank, world_size)))
            self._by_iteration[iteration] = Pending(completions=done)

    def close(self) -> None:
        """Drop everything, once nothing is generated any more."""
        futures.wait([pending.completions for pending in self._by_iteration.values()])
        self._by_iteration.clear()


class AsyncRolloutModule(RolloutModule):
    """A module that may train on rollouts of older weights, generated while it updates.

    Args:
        policy: a Hugging Face directory, or a model's name on the hub.
        max_staleness: how many iterations before its own a rollout is generated. 0: each with the
            present weights. With more, an engine with weights of its own generates while the
            iterations before update; take a ``correction`` then.
        **options: of ``RolloutModule``: engine, grader, sampling and the like.
    """

    wait_seconds = 0.0
    """How long the last rollout has kept the iteration waiting, of those in the background."""
    correction: Correction | None = None
    dynamic_sampling = False
    plan: Any

    def __init__(self, policy: str, *, max_staleness: int = 0, **options: Any) -> None:
        check_at_least("max_staleness", max_staleness, 0)
        super().__init__(policy, **options)
        self.max_staleness = max_staleness
        self.ahead = PendingRollouts()

    def setup(self, stage: str) -> None:
        """Check data and correction, before anything is loaded."""
        if stage == "fit" and self.engine.in_flight_updates and not self.max_staleness:
            raise ValueError(
                "engine.in_flight_updates: true is for rollouts that are generated ahead, and"
                " max_staleness is 0; set that to 1 or more"
            )
        if stage == "fit" and self.max_staleness:
            if self.data is None:
                raise ValueError(
                    f"max_staleness: {self.max_staleness} takes prompts ahead from the data module,"
                    " and trainer.fit was given none; pass datamodule=, or leave it at 0"
                )
            if self.correction is None:
                rank_zero_warn(
                    f"max_staleness: {self.max_staleness} without model.correction leaves responses"
                    " of older weights to the objective's clip alone;"
                    " r1lit.objectives.TruncatedImportanceSampling weighs their tokens"
                )
        self.ahead.close()
        super().setup(stage)

    def worker(self, sampling: Sampling, seed: int, training: bool = False) -> RolloutWorker:
        """Return what collects rollouts, when the engine has ended what it generates ahead.

        An engine holds one set of weights and generates for one caller at a time. In training one
        with ``in_flight_updates`` goes on meanwhile.
        """
        started = time.perf_counter()
        if not (training and self.engine.in_flight_updates):
            self.ahead.wait()
        self.wait_seconds = time.perf_counter() - started
        return super().worker(sampling, seed, training)

    def collect(self, batch: PromptBatch) -> tuple[Rollout, dict[str, float]]:
        """Return the iteration's rollout and what to log of it; begin those of later ones."""
        worker = self.worker(self.sampling_at(batch.iteration), self.seed, training=True)
        timings = Timings(sync=self.sync_seconds, rollout=self.wait_seconds)
        collect = partial(self.ahead.collect, worker, batch, timings=timings)
        with self.weights_to_sample():
            if self.dynamic_sampling:
                rollout, num_dropped = collect_mixed(collect, batch)
            else:
                rollout, num_dropped = collect(range(batch.num_prompts)), 0
            started = time.perf_counter()
            self.generate_ahead(worker, batch.iteration)
            timings.rollout += time.perf_counter() - started
        metrics = {"train/num_groups_dropped": float(num_dropped), **timings.metrics()}
        return rollout, metrics | self.staleness(rollout)

    def generate_ahead(self, worker: RolloutWorker, iteration: int) -> None:
        """Begin the rollouts of the next ``max_staleness`` iterations, as far as the run goes."""
        if not self.max_staleness:
            return
        loader, num_updates = self.data.train_dataloader(), updates_of_run(self)
        later = range(iteration + 1, iteration + 1 + self.max_staleness)
        an_iteration = self.plan.updates_per_iteration
        batches = [
            (replace(worker, sampling=self.sampling_at(i)), loader.batch(i))
            for i in later
            if i * an_iteration < num_updates
        ]
        self.ahead.begin(worker.engine, batches)

    def staleness(self, rollout: Rollout) -> dict[str, float]:
        """Return how many updates its tokens' weights are behind the engine's present ones.

        NaN where the engine does not name them.
        """
        if not self.max_staleness:
            return {}
        mean = largest = math.nan
        now, version_BT = self.engine.version, rollout.version_BT
        if now is not None and version_BT is not None:
            known = version_BT[rollout.mask_BT & (version_BT >= 0)]
            if len(known):
                mean, largest = now - float(known.double().mean()), float(now - known.min())
        return {"train/staleness/mean": mean, "train/staleness/max": largest}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put in what is generated ahead, once it is there: a resumed run trains on the same."""
        super().on_save_checkpoint(checkpoint)
        if self.max_staleness:
            checkpoint[PENDING] = self.ahead.state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take it back; under ``--resume_changed`` it is generated anew, as now requested."""
        super().on_load_checkpoint(checkpoint)
        if self.max_staleness and not getattr(self.data, "may_differ", False):
            pending = checkpoint.get(PENDING, {})
            self.ahead.load(pending, self.global_rank, self.trainer.world_size)

    def teardown(self, stage: str) -> None:
        """Let the engine end what it generates, then let it go."""
        self.ahead.close()
        super().teardown(stage)


def _of_all_ranks(own: Any) -> list[Any]:
    if not (dist.is_available() and dist.is_initialized()):
        return [own]
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, own)
    return ranks
