"""Asynchronous iterations: rollouts drawn before the iterations that train on them.

With ``max_staleness: k`` the rollout of iteration i is generated with the weights from before the
updates of iteration i - k; those of the first k + 1 iterations with the weights that the run begins
with. An engine that works ``in_background`` generates while an iteration updates. Any other one
generates at once, which gains no time and is just as stale.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch import distributed as dist

from r1lit.batches import PromptBatch, Rollout
from r1lit.data.loaders import shard
from r1lit.modules.async_grading import AsyncGrading
from r1lit.modules.rollout_worker import RolloutWorker, Timings, collect_mixed
from r1lit.modules.rollouts import RolloutModule
from r1lit.modules.schedule import updates_of_run
from r1lit.objectives import Correction
from r1lit.rollout import Completion, Sampling
from r1lit.settings import check_at_least

DRAWN_AHEAD = "drawn_ahead"
UNKNOWN = -1


@dataclass(frozen=True, kw_only=True)
class Draw:
    """An iteration's completions, which may still be generated, and their grading if it began."""

    completions: futures.Future[list[Completion]]
    grading: AsyncGrading | None = None


class DrawAhead:
    """What is drawn, or being drawn, for iterations to come."""

    def __init__(self) -> None:
        self._draws: dict[int, Draw] = {}  # by iteration

    def begin(self, worker: RolloutWorker, batches: Iterable[PromptBatch]) -> None:
        """Draw the rollouts of those batches that have none; in a thread where the engine may."""
        begun = []
        for batch in batches:
            if batch.iteration not in self._draws:
                prompts = range(batch.num_prompts)
                grading = worker.grading(batch, prompts)
                draw = Draw(completions=futures.Future(), grading=grading)
                self._draws[batch.iteration] = draw
                begun.append((worker.requests(batch, prompts, batch.iteration), draw, grading))

        def generate() -> None:
            try:
                for requests, draw, grading in begun:
                    draw.completions.set_result(worker.engine.generate(requests, grading.begin))
            except BaseException as error:  # raised where it is waited for
                for _, draw, _ in begun:
                    if not draw.completions.done():
                        draw.completions.set_exception(error)

        if worker.engine.in_background:
            # a daemon: a run that fails must not wait for responses that nobody trains on
            threading.Thread(target=generate, daemon=True, name="draw-ahead").start()
        else:
            generate()
            self.wait()

    def wait(self) -> None:
        """Return once nothing is generated any more.

        Raises:
            Exception: of the engine.
        """
        for draw in self._draws.values():
            draw.completions.result()

    def collect(
        self,
        worker: RolloutWorker,
        batch: PromptBatch,
        prompt_indices: Sequence[int],
        timings: Timings,
    ) -> Rollout:
        """Return the batch's rollout: the one drawn ahead if there is one, else one drawn now.

        What is drawn ahead is of the batch's first P prompts, which are asked for first.
        """
        draw = self._draws.pop(batch.iteration, None)
        if draw is None:
            return worker.collect(batch, prompt_indices, timings)
        completions = draw.completions.result()
        return worker.grade(completions, batch, prompt_indices, timings, draw.grading)

    def state(self) -> dict[int, dict[str, Tensor]]:
        """Return the completions of all ranks by iteration, for a checkpoint, once all are there.

        All ranks call it.
        """
        self.wait()
        own = {i: _packed(draw.completions.result()) for i, draw in self._draws.items()}
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
            done.set_result(list(shard(_unpacked(packed), rank, world_size)))
            self._draws[iteration] = Draw(completions=done)

    def close(self) -> None:
        """Drop everything, once nothing is generated any more."""
        futures.wait([draw.completions for draw in self._draws.values()])
        self._draws.clear()


class AsyncRolloutModule(RolloutModule):
    """A module that may train on rollouts of older weights, drawn while it updates.

    Args:
        policy: a Hugging Face directory, or a model's name on the hub.
        max_staleness: how many iterations before its own a rollout is drawn. 0 draws each with the
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
        self.ahead = DrawAhead()

    def setup(self, stage: str) -> None:
        """Check data and correction, before anything is loaded."""
        if stage == "fit" and self.max_staleness:
            if self.max_tokens_from:
                raise ValueError(
                    f"max_tokens_from: {dict(self.max_tokens_from)} with max_staleness:"
                    f" {self.max_staleness} would come as much later; leave one of them out"
                )
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
        """Return what collects rollouts, when the engine has ended what it draws ahead.

        An engine holds one set of weights and generates for one caller at a time.
        """
        started = time.perf_counter()
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
            self.draw_ahead(worker, batch.iteration)
            timings.rollout += time.perf_counter() - started
        metrics = {"train/num_groups_dropped": float(num_dropped), **timings.metrics()}
        return rollout, metrics | self.staleness(rollout)

    def draw_ahead(self, worker: RolloutWorker, iteration: int) -> None:
        """Begin the rollouts of the next ``max_staleness`` iterations, as far as the run goes."""
        if not self.max_staleness:
            return
        loader, num_updates = self.data.train_dataloader(), updates_of_run(self)
        later = range(iteration + 1, iteration + 1 + self.max_staleness)
        an_iteration = self.plan.updates_per_iteration
        self.ahead.begin(worker, [loader.batch(i) for i in later if i * an_iteration < num_updates])

    def staleness(self, rollout: Rollout) -> dict[str, float]:
        """Return how many updates its weights are behind the engine's, the iteration's first ones.

        NaN where the engine does not name them.
        """
        if not self.max_staleness:
            return {}
        now = self.engine.version
        known = [r.version for r in rollout.responses if r.version is not None]
        updates = [math.nan if now is None else float(now - version) for version in known]
        updates = updates or [math.nan]
        return {
            "train/staleness/mean": sum(updates) / len(updates),
            "train/staleness/max": max(updates),
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put in what is drawn ahead, once it is there: a resumed run trains on the same."""
        super().on_save_checkpoint(checkpoint)
        if self.max_staleness:
            checkpoint[DRAWN_AHEAD] = self.ahead.state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take it back; under ``--resume_changed`` it is drawn anew, as what is asked for now."""
        super().on_load_checkpoint(checkpoint)
        if self.max_staleness and not getattr(self.data, "may_differ", False):
            drawn = checkpoint.get(DRAWN_AHEAD, {})
            self.ahead.load(drawn, self.global_rank, self.trainer.world_size)

    def teardown(self, stage: str) -> None:
        """Let the engine end what it draws, then let it go."""
        self.ahead.close()
        super().teardown(stage)


def _packed(completions: Sequence[Completion]) -> dict[str, Tensor]:
    """Return completions as tensors that are one behind the other, on the CPU."""
    tokens = [c.token_ids for c in completions if c.token_ids is not None]
    logps = [c.logps for c in completions if c.logps is not None]
    assert len(tokens) == len(logps) == len(completions), "training needs tokens and log-probs"
    versions = [UNKNOWN if c.version is None else c.version for c in completions]
    return {
        "token_ids": torch.cat(tokens).int().cpu(),
        "logps": torch.cat(logps).cpu(),
        "num_tokens": torch.tensor([c.num_tokens for c in completions]),
        "finished": torch.tensor([c.finished for c in completions]),
        "version": torch.tensor(versions),
    }


def _unpacked(packed: Mapping[str, Tensor]) -> list[Completion]:
    num_tokens = packed["num_tokens"].tolist()
    return [
        Completion(
            token_ids=token_ids.long(),
            logps=logps,
            finish_reason="stop" if finished else "length",
            version=None if version == UNKNOWN else version,
        )
        for token_ids, logps, finished, version in zip(
            packed["token_ids"].split(num_tokens),
            packed["logps"].split(num_tokens),
            packed["finished"].tolist(),
            packed["version"].tolist(),
            strict=True,
        )
    ]


def _of_all_ranks(own: Any) -> list[Any]:
    if not (dist.is_available() and dist.is_initialized()):
        return [own]
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, own)
    return ranks
