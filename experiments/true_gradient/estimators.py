"""Gradients of one batch: of every objective as r1lit computes it, and of the expected reward.

K estimators   B rows   T tokens   N nodes of all trees   d, i directions that are kept

An objective's gradient is sum over tokens of c_t d log pi(o_t) / dX, with c_t = -d loss / d log pi.
So the objective is asked for c alone, by its own ``loss``, and the trees hold the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from experiments.true_gradient.tree import Scores
from r1lit import objectives
from r1lit.batches import Response, Rollout
from r1lit.modules.selected_tokens import with_selection
from r1lit.objectives import LossInputs, Objective


def estimators(max_tokens: int) -> dict[str, Objective]:
    """Return the objectives by name, each with its paper's advantage and defaults."""
    return {
        "RLOO": objectives.RLOO(),
        "Dr. GRPO": objectives.DrGRPO(max_tokens=max_tokens),
        "REINFORCE": objectives.RLOO(advantage=objectives.NoBaseline()),
        "MaxRL": objectives.DrGRPO(max_tokens=max_tokens, advantage=objectives.MeanNormalized()),
        "GRPO, ratio per output": objectives.GRPOSequence(),
        "GRPO": objectives.GRPO(),
        "GSPO": objectives.GSPO(),
        "GSPO-token": objectives.GSPOToken(),
        "GMPO": objectives.GMPO(),
        "SAPO": objectives.SAPO(),
        "GDPO": objectives.GRPO(advantage=objectives.NormalizedPerReward()),
        "DAPO": objectives.DAPO(),
        "CISPO": objectives.CISPO(),
        "DPPO": objectives.DPPO(),
        "Clip-Cov": objectives.ClipCov(),
        "KL-Cov": objectives.KLCov(),
        "GPG": objectives.PolicyGradient(advantage=objectives.GroupCentered()),
        "REINFORCE++": objectives.PPO(advantage=objectives.Whitened(objectives.NoBaseline())),
        "RAFT": objectives.PolicyGradient(advantage=objectives.OnlyKept("best")),
    }


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A response, its nodes among those of all trees, and its rewards by name."""

    nodes: Tensor
    response: Response
    rewards: Mapping[str, float]

    @property
    def reward(self) -> float:
        """The sum of the rewards."""
        return sum(self.rewards.values())


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Leaves sampled by the old policy, in groups, prompt-major."""

    leaves: Sequence[Leaf]
    group_size: int

    def nodes_BT(self) -> tuple[Tensor, Tensor]:
        """Return the nodes of each row, 0 in the padding, and which exist."""
        length_B = torch.tensor([len(leaf.nodes) for leaf in self.leaves])
        nodes_BT = pad_sequence([leaf.nodes for leaf in self.leaves], batch_first=True)
        return nodes_BT, torch.arange(nodes_BT.shape[1]) < length_B[:, None]

    def rollout(self, token_N: Tensor, logp_old_N: Tensor) -> Rollout:
        """Return the batch as r1lit's objectives read it."""
        nodes_BT, mask_BT = self.nodes_BT()
        logp_BT = torch.where(mask_BT, logp_old_N[nodes_BT], 0.0)
        shape = (len(self.leaves) // self.group_size, self.group_size)
        names = self.leaves[0].rewards
        rewards = {n: torch.tensor([x.rewards[n] for x in self.leaves]).view(shape) for n in names}
        return Rollout(
            iteration=0,
            group_size=self.group_size,
            prompts=((0,),) * shape[0],
            responses=tuple(leaf.response for leaf in self.leaves),
            response_BT=token_N[nodes_BT],
            length_B=mask_BT.sum(-1),
            loss_mask_BT=mask_BT,
            logp_sampler_BT=logp_BT,
            logp_old_BT=logp_BT,
            rewards=rewards,
            reward_PG=sum(rewards.values(), torch.zeros(shape)),
            advantage_BT=torch.zeros_like(logp_BT),
        )


def token_weights_BT(
    name: str, objective: Objective, rollout: Rollout, logp_BT: Tensor, seed: int
) -> tuple[Tensor, float]:
    """Return c of an objective at the present policy's log-probs, and the share that is clipped."""
    rollout = replace(rollout, advantage_BT=objective.advantage.estimate(rollout))
    rollout, _ = with_selection(rollout, objective, seed)
    logp_BT = logp_BT.clone().requires_grad_()
    num_tokens = float(rollout.loss_mask_BT.sum())
    outputs = objective.loss(
        LossInputs(
            logp_BT=logp_BT,
            logp_old_BT=rollout.logp_old_BT,
            logp_sampler_BT=rollout.logp_sampler_BT,
            advantage_BT=rollout.advantage_BT,
            mask_BT=rollout.loss_mask_BT,
            num_rows=float(len(rollout.responses)),
            num_tokens=num_tokens,
            extra_BT=rollout.extra_BT,
        )
    )
    (gradient_BT,) = torch.autograd.grad(outputs.loss, logp_BT)
    return -gradient_BT, float(outputs.metrics["clip_fraction"]) / num_tokens


def true_weights_BT(batch: Batch, log_weight_B: Tensor, baseline_B: Tensor) -> Tensor:
    """Return c of the gradient of the expected reward: w (r - b) / B at all tokens of a row.

    w = pi / pi_old of the whole response makes it unbiased for the present policy, and so does any
    baseline that was estimated from other samples.
    """
    _, mask_BT = batch.nodes_BT()
    reward_B = torch.tensor([leaf.reward for leaf in batch.leaves])
    weight_B = log_weight_B.exp() * (reward_B - baseline_B) / len(batch.leaves)
    return torch.where(mask_BT, weight_B[:, None], 0.0)


def gradients_KX(weights_KBT: Tensor, batch: Batch, scores: Scores) -> Tensor:
    """Return sum over tokens of c d log pi / dX for each estimator, X as one row of d * i."""
    nodes_BT, mask_BT = batch.nodes_BT()
    nodes_n = nodes_BT[mask_BT]
    out_nd, in_ni = scores.out_Nd[nodes_n], scores.in_Ni[nodes_n]
    weights_Kn = weights_KBT[:, mask_BT]
    return torch.stack([(out_nd * c_n[:, None]).T @ in_ni for c_n in weights_Kn]).flatten(1)


def groups_of(pools: Sequence[np.ndarray], group_size: int, groups: int) -> list[list[int]]:
    """Return batches of leaves: ``groups`` groups each, as many of each pool, none used twice.

    >>> groups_of([np.array([1, 1, 2, 3]), np.array([7, 8, 7, 9])], 2, 2)
    [[1, 1, 7, 8], [2, 3, 7, 9]]
    """
    rows = groups // len(pools) * group_size
    num = min(len(pool) for pool in pools) // rows
    cut = [pool[: num * rows].reshape(num, rows) for pool in pools]
    return np.concatenate(cut, axis=1).tolist()
