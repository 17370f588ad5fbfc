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

from typing import Any

import lightning.pytorch as pl

from experiments.budget import Budget
from r1lit.batches import Rollout
from r1lit.policy.flops import Shape, training_flops
from r1lit.protocols import HasPolicyConfig, LearnsFromRewards
from r1lit.supervised_batches import PackedRows


class ComputeCount(Budget):
    """Adds up a run's FLOPs in ``path``; ends it with the iteration that spends ``limit``."""

    unit = "flops"

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """See the policy's shape.

        Raises:
            ValueError: if there are several processes, or the module has no policy.
        """
        if not isinstance(pl_module, HasPolicyConfig):
            raise ValueError(
                f"ComputeCount needs a module with a policy_config; {type(pl_module).__name__} has"
                " none: remove the callback"
            )
        self._shape = Shape.of(pl_module.policy_config)
        super().on_train_start(trainer, pl_module)

    def count(self, pl_module: pl.LightningModule, outputs: Any, batch: Any) -> dict[str, float]:
        """Return the FLOPs of an iteration, and the tokens that are learnt from.

        Raises:
            ValueError: if it is neither of SFT nor of RL.
        """
        if isinstance(batch, PackedRows):
            lengths = document_lengths(batch)
            return {"flops": training_flops(self._shape, lengths), "num_tokens": sum(lengths)}
        if not isinstance(pl_module, LearnsFromRewards):
            raise ValueError(
                f"ComputeCount counts SFT's packed rows and RL's rollouts;"
                f" {type(pl_module).__name__} trains on neither: remove the callback"
            )
        rollout, objective = outputs["rollout"], pl_module.objective
        flops = iteration_flops(
            self._shape,
            rollout,
            skips=objective.skips_zero_advantage(),
            has_reference=objective.beta > 0,
        )
        return {"flops": flops, "num_tokens": int(rollout.mask_BT.sum())}


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
