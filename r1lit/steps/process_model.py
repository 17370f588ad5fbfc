"""PRIME's process model: implicit rewards of tokens from a model that learns outcomes.

B rows (responses)   T response tokens   b rows of a micro-batch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim import Optimizer

from r1lit.batches import Rollout
from r1lit.errors import check_above
from r1lit.groups import counting_groups
from r1lit.objectives.terms import divisor, hide_padding
from r1lit.policy import LogProbs, Policy, is_packed, load_policy
from r1lit.policy.held import HeldModels
from r1lit.policy.policy import ModelWrapper
from r1lit.policy.reference import make_reference
from r1lit.rollout.model_inputs import model_inputs
from r1lit.steps.base import LearningStep, MakesOptimizer, Run, Schedule


class ProcessModel(LearningStep):
    """Gives each token a reward from a process model that is trained online (PRIME, 2502.01456).

    The process model phi starts as a copy of the policy. A response's implicit outcome reward is
    beta (log pi_phi(o) - log pi_ref(o)), and each token's share of it is its process reward, which
    ``r1lit.objectives.ImplicitProcess`` reads. In an iteration phi is trained first, by
    cross-entropy of sigma(outcome reward) with the verdicts (Algorithm 1), and then gives the
    rewards of the iteration's tokens; verdicts are its only labels, so it is always of fresh
    responses. A group that is left out has none, and is no example. It has an optimiser of its own
    (under DDP take ``strategy: ddp_find_unused_parameters_true``).

    Args:
        beta: of the implicit reward; the paper: 0.05.
        optimizer: makes the process model's optimiser; ``torch.optim.AdamW`` if left out.
        max_grad_norm: its gradients are clipped to this norm; as the policy's if left out.
    """

    reads = ("loss_mask_BT",)
    writes = ("process_reward_BT",)
    held = HeldModels(trained=1, constant=1)

    def __init__(
        self,
        beta: float = 0.05,
        optimizer: MakesOptimizer | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        check_above("beta", beta, 0, "the paper: 0.05")
        self.beta = beta
        self.max_grad_norm = max_grad_norm
        self._make_optimizer = optimizer or torch.optim.AdamW
        self.model: Policy | None = None
        self.reference: Any = None

    def models(self, run: Run) -> dict[str, ModelWrapper]:
        """Load the process model and its reference: ``process_model``, ``process_reference``."""
        source = run.source.but(adapter=None)
        self.model = load_policy(source, dropout=run.dropout, **run.loading)
        if source.from_scratch:
            self.model.load_state_dict(run.policy.state_dict())
        self.reference = make_reference(self.model)
        return {"process_model": self.model, "process_reference": self.reference}

    def optimizers(self) -> list[tuple[Optimizer, Schedule | None]]:
        """Return the process model's optimiser."""
        assert self.model is not None
        return [(self._make_optimizer(self.model.parameters()), None)]

    def __call__(self, rollout: Rollout, run: Run) -> tuple[Rollout, dict[str, float]]:
        """Train the process model, and return the rollout with its rewards of tokens."""
        own = replace(rollout, candidates=None)  # those are the policy's
        logp_ref_BT = self._logp(own, self.reference, run)
        score_B = self.implicit_rewards(own, logp_ref_BT, run).sum(-1)
        counts_B = counting_groups(rollout).repeat_interleave(rollout.group_size)
        losses, norms = zip(
            *(
                self._update(own, rows_b, logp_ref_BT, counts_B, run)
                for rows_b in run.minibatches(own, range(run.num_inner_epochs))
            ),
            strict=True,
        )
        reward_BT = self.implicit_rewards(own, logp_ref_BT, run)
        extra_BT = {**rollout.extra_BT, "process_reward_BT": reward_BT}
        return replace(rollout, extra_BT=extra_BT), {
            "train/process_loss": _mean(losses),
            "train/process_grad_norm": _mean(norms),
            "train/process_accuracy": float(
                ((score_B > 0) == rollout.is_right_B)[counts_B].float().mean()
            ),
            "train/process_reward": float(reward_BT.sum(-1)[counts_B].mean()),
        }

    def implicit_rewards(self, rollout: Rollout, logp_ref_BT: Tensor, run: Run) -> Tensor:
        """Return beta (log pi_phi - log pi_ref) of each token ``[B, T]``, 0 in the padding."""
        return self.beta * (self._logp(rollout, self.model, run) - logp_ref_BT)

    def _logp(self, rollout: Rollout, model: Any, run: Run) -> Tensor:
        """Return log-probs at temperature 1 ``[B, T]``, no gradient."""
        assert self.model is not None
        packed = is_packed(self.model)
        return run.per_token_BT(rollout, model, lambda x: model(x, LogProbs()).logp_K, packed)

    def _update(
        self, rollout: Rollout, rows_b: Tensor, logp_ref_BT: Tensor, counts_B: Tensor, run: Run
    ) -> tuple[float, float]:
        assert self.model is not None
        num_rows = divisor(run.mean_over_ranks(counts_B[rows_b].sum()))
        return run.update_rows(
            run.optimizer_of(self),
            rollout,
            rows_b,
            partial(self._loss, rollout, logp_ref_BT, counts_B, num_rows),
            packed=is_packed(self.model),
            max_grad_norm=self.max_grad_norm,
        )

    def _loss(
        self,
        rollout: Rollout,
        logp_ref_BT: Tensor,
        counts_B: Tensor,
        num_rows: float,
        rows_b: Tensor,
    ) -> Tensor:
        """Return a micro-batch's share of the minibatch's mean cross-entropy."""
        assert self.model is not None
        responses = model_inputs(rollout, rows_b)
        width = responses.response_BT.shape[1]
        logp_bT = responses.to_rows(self.model(responses, LogProbs()).logp_K)
        score_b = self.beta * (logp_bT - logp_ref_BT[rows_b, :width]).sum(-1)
        right_b = rollout.is_right_B[rows_b].to(score_b)
        loss_b = binary_cross_entropy_with_logits(score_b, right_b, reduction="none")
        return hide_padding(loss_b, counts_B[rows_b]).sum() / num_rows


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
