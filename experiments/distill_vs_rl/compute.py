"""The compute of a training run: its learning rate falls, and it ends, with a budget of FLOPs.

With T(L) = 6 N L + 6 n d L^2 the FLOPs of forward and backward over a sequence of L tokens (N
parameters, n layers of attention size d; ``r1lit.policy.flops.training_flops``), a forward alone is
a third of it. Then

    SFT        sum over documents of T(L)
    RL         rollout   1/3 [sum over prompts of T(p) + sum over responses of T(p + o) - T(p)]
               update    the same sum over the rows that it computes, without the third
               reference 1/3 of the update, with a KL penalty

A prompt counts once for its group, padding never. What judging costs is left out, and so is what
the teacher's responses cost: they are made once, for every student.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from r1lit.batches import Rollout
from r1lit.callbacks.base import finished_iterations
from r1lit.files import replace_file
from r1lit.policy.flops import Shape, training_flops
from r1lit.protocols import HasPolicyConfig, LearnsFromRewards
from r1lit.supervised_batches import PackedRows


class ComputeCount(pl.Callback):
    """Adds up a run's FLOPs in ``path``; ends it with the iteration that spends ``limit``.

    The count is part of the checkpoint. One process: a second one's work is not seen.

    Args:
        path: of the count.
        limit: FLOPs.
        decay_to: share of the learning rate that is left at the end: it falls by a cosine of the
            share of ``limit`` that is spent, alike for runs whose number of updates differs.
    """

    def __init__(self, path: str, limit: float, decay_to: float = 1.0) -> None:
        if not limit > 0:
            raise ValueError(f"limit: {limit} FLOPs is not above 0")
        if not 0 <= decay_to <= 1:
            raise ValueError(f"decay_to: {decay_to} is no share of the rate, from 0 to 1")
        self.path = Path(path)
        self.limit = limit
        self.decay_to = decay_to
        self.flops = 0.0
        self.num_tokens = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the count."""
        return {"flops": self.flops, "num_tokens": self.num_tokens}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting."""
        self.flops, self.num_tokens = state_dict["flops"], state_dict["num_tokens"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """See the policy's shape; a run that had spent its budget when it was killed ends here.

        Raises:
            ValueError: if there are several processes, or the module has no policy.
        """
        if trainer.world_size > 1:
            raise ValueError(f"devices: {trainer.world_size} processes; ComputeCount sees one")
        if not isinstance(pl_module, HasPolicyConfig):
            raise ValueError(
                f"ComputeCount needs a module with a policy_config; {type(pl_module).__name__} has"
                " none: remove the callback"
            )
        self._shape = Shape.of(pl_module.policy_config)
        self._follow(trainer)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Add an iteration.

        Raises:
            ValueError: if it is neither of SFT nor of RL.
        """
        if isinstance(batch, PackedRows):
            lengths = document_lengths(batch)
            self.flops += training_flops(self._shape, lengths)
            self.num_tokens += sum(lengths)
        elif isinstance(pl_module, LearnsFromRewards):
            rollout = outputs["rollout"]
            objective = pl_module.objective
            self.flops += iteration_flops(
                self._shape,
                rollout,
                skips=objective.skips_zero_advantage(),
                has_reference=objective.beta > 0,
            )
            self.num_tokens += int(rollout.mask_BT.sum())
        else:
            raise ValueError(
                f"ComputeCount counts SFT's packed rows and RL's rollouts;"
                f" {type(pl_module).__name__} trains on neither: remove the callback"
            )
        self._follow(trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the count: the run is finished then, its policy exported."""
        content = {**self.state_dict(), "iterations": finished_iterations(trainer, pl_module)}
        content |= {"updates": trainer.global_step, "limit": self.limit}
        replace_file(self.path, (json.dumps(content) + "\n").encode())

    def _follow(self, trainer: pl.Trainer) -> None:
        """Set the rate for what is spent; end the run when that is all."""
        spent = min(self.flops / self.limit, 1.0)
        share = self.decay_to + (1 - self.decay_to) * (1 + math.cos(math.pi * spent)) / 2
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = share * group.setdefault("initial_lr", group["lr"])
        trainer.should_stop |= spent == 1.0


def document_lengths(batch: PackedRows) -> list[int]:
    """Return the lengths of documents that have targets, each up to what predicts its last one."""
    target = batch.loss_mask_RL.flatten().tolist()
    starts = (batch.position_ids_RL.flatten() == 0).nonzero().flatten().tolist()
    lengths = []
    for start, stop in zip(starts, [*starts[1:], len(target)], strict=True):
        places = [place for place in range(start, stop) if target[place]]
        if places:
            lengths.append(places[-1] - start)
    return lengths


def iteration_flops(shape: Shape, rollout: Rollout, *, skips: bool, has_reference: bool) -> float:
    """Return the FLOPs of an iteration of RL: rollout, update and reference.

    With ``skips``, rows of advantage 0 are in no update.
    """
    size = rollout.group_size
    prompts = [training_flops(shape, [len(prompt)]) for prompt in rollout.prompts]
    rows = [
        training_flops(shape, [len(rollout.prompts[b // size]) + response.num_tokens])
        - prompts[b // size]
        for b, response in enumerate(rollout.responses)
    ]
    learnt = [
        b for b, a in enumerate(rollout.advantage_BT.abs().amax(-1).tolist()) if a != 0 or not skips
    ]
    update = sum(rows[b] for b in learnt) + sum(prompts[p] for p in {b // size for b in learnt})
    return (sum(prompts) + sum(rows)) / 3 + update * (1 + has_reference / 3)
