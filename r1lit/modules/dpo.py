"""Direct preference optimisation: from pairs that are given, or drawn by the policy itself.

P prompts   G responses per prompt   N pairs   2 responses of a pair, chosen first
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PretrainedConfig

from r1lit.batches import PreferenceBatch, Rollout
from r1lit.modules.grpo import GRPOModule
from r1lit.modules.micro_batches import responses_of
from r1lit.modules.reward import RewardModule, pair_metrics
from r1lit.modules.sharding import whole_weights
from r1lit.modules.update_metrics import UpdateMetrics
from r1lit.objectives import DPO, PolicyGradient
from r1lit.policy import LogProbs, Policy, Responses, load_config, load_policy
from r1lit.policy.reference import make_reference, refresh_reference
from r1lit.policy.scalar import split_by_length
from r1lit.rewards import Reward
from r1lit.rollout import Sampling
from r1lit.seeding import permutation


def log_ratios(
    policy: Any, reference: Any, responses: Responses, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return log pi/pi_ref of each response, ``[b]``, and the policy's log-probs ``[b, T]``.

    The reference computes first: as an adapter switched off it may not come later.
    """
    log_probs = LogProbs(temperature=temperature)
    with torch.no_grad():
        logp_ref_bT = responses.to_rows(reference(responses, log_probs).logp_K)
    logp_bT = responses.to_rows(policy(responses, log_probs).logp_K)
    return (logp_bT - logp_ref_bT).sum(-1), logp_bT


class DPOModule(RewardModule):
    """Trains a policy on pairs by ``r1lit.objectives.DPO``, with no reward model and no rollout.

    A policy is a reward model whose reward is beta log pi/pi_ref; so data (``PreferenceDataModule``
    with ``score_on: response``), reports and metrics are those of ``RewardModule``. The reference
    is the policy as it begins: a frozen copy, or the policy with its adapter off.

    Args:
        policy: an SFT policy's directory, or a model's name on the hub.
        objective: ``DPO``, with beta 0.1 if left out.
        **options: of ``PolicyModule``: optimizer, lr_scheduler, micro_batch_tokens and the like.
    """

    _auto_class = AutoModelForCausalLM
    reference_in_loss = True
    objective: DPO

    def __init__(self, policy: str, objective: DPO | None = None, **options: Any) -> None:
        super().__init__(policy, objective or DPO(), **options)

    def _load_config(self, policy: str, trust_remote_code: bool) -> PretrainedConfig:
        return load_config(policy, trust_remote_code)

    def _load_model(self) -> Policy:
        return load_policy(self.policy_path, **self._loading)  # type: ignore[arg-type]

    def _copy_policy(self) -> None:
        self.reference = make_reference(self.policy)

    def refresh_reference(self) -> None:
        """Replace the reference by the policy."""
        refresh_reference(self.reference, self.policy)

    def rewards_NK(self, batch: PreferenceBatch, indices: Sequence[int]) -> Tensor:
        """Return the implicit rewards of some pairs, EOS counted among a response's tokens."""
        rows = [row for i in indices for row in batch.rows[i]]
        lengths = [length for i in indices for length in batch.lengths[i]]
        # a response whose whole prompt was cut is read from its second token on
        starts = [max(1, len(row) - n - 1) for row, n in zip(rows, lengths, strict=True)]
        ends = [row[start:] for row, start in zip(rows, starts, strict=True)]
        width = max(map(len, ends))
        padded = [[*end, *[0] * (width - len(end))] for end in ends]
        length_B1 = torch.tensor([[len(end)] for end in ends], device=self.device)
        responses = Responses(
            prompts=[row[:start] for row, start in zip(rows, starts, strict=True)],
            response_BT=torch.tensor(padded, device=self.device),
            mask_BT=torch.arange(width, device=self.device) < length_B1,
        )
        ratio_B, _ = log_ratios(self.policy, self.reference, responses)
        return self.objective.beta * ratio_B.view(len(indices), 2)

    def held_out_rewards_NK(self, batch: PreferenceBatch) -> Tensor:
        """Return the implicit rewards of held-out pairs, on the CPU."""
        reward_NK = torch.zeros(len(batch.rows), 2)
        with whole_weights(self.policy), whole_weights(self.reference):
            for indices in self._micro_batches(batch):
                reward_NK[indices] = self.rewards_NK(batch, indices).float().cpu()
        return reward_NK

    def before_export(self) -> None:
        """Add nothing: what is exported is a policy."""


class OnlineDPOModule(GRPOModule):
    """``GRPOModule`` whose updates are DPO's on pairs that the policy drew: best against worst.

    The pair of a group is its response of the highest reward and that of the lowest, the first of
    equals; a group of equal rewards has none (online DPO, 2402.04792, with rewards for the judge).
    A minibatch is ``train_batch_size`` responses in whole groups, so the pairs of
    ``train_batch_size / group_size`` of them. The loss is exact in every update: margins are those
    of the policy as it is then. The reference is the policy as it begins, which
    ``r1lit.callbacks.ReferenceRefresh`` may renew.

    Args:
        policy: a Hugging Face directory, or a model's name on the hub.
        rewards: reward functions or plain callables; their weighted sum ranks a group.
        sampling: how responses are sampled in training.
        dpo: the objective; beta 0.1 if left out.
        **options: of ``GRPOModule``; ``kl_in_reward``, ``whiten_advantages`` and ``correction``
            change nothing here.
    """

    reference_in_loss = True

    def __init__(
        self,
        policy: str,
        rewards: list[Reward],
        sampling: Sampling,
        dpo: DPO | None = None,
        **options: Any,
    ) -> None:
        super().__init__(policy, PolicyGradient(), rewards, sampling, **options)
        self.dpo = dpo or DPO()

    def setup(self, stage: str) -> None:
        """Check that minibatches are whole groups."""
        super().setup(stage)
        if self.data is not None and stage == "fit":
            rows = self.plan.group_size * self.plan.world_size
            if self.train_batch_size % rows:
                raise ValueError(
                    f"train_batch_size: {self.train_batch_size} is not a multiple of {rows}, the"
                    " responses of one group a rank, whose best and worst are a pair"
                )

    def minibatches(self, rollout: Rollout, epochs: Iterable[int]) -> Iterator[Tensor]:
        """Yield the rows of whole groups, in an order of their own in each epoch."""
        size = rollout.group_size
        num_groups = self.train_batch_size // self.trainer.world_size // size
        one_G = torch.arange(size, device=rollout.response_BT.device)
        for epoch in epochs:
            order = permutation(rollout.num_prompts, self.seed, "groups", rollout.iteration, epoch)
            for groups_p in torch.tensor(order, device=one_G.device).split(num_groups):
                yield (groups_p[:, None] * size + one_G).flatten()

    def update_minibatch(
        self, rollout: Rollout, rows_b: Tensor, update_metrics: UpdateMetrics, is_first_update: bool
    ) -> dict[str, float]:
        """Make the update of the pairs of one minibatch of whole groups."""
        pairs_N2, has_pairs = best_and_worst(rollout, rows_b)
        num_pairs = self.mean_over_ranks(torch.tensor(len(pairs_N2) * has_pairs).to(self.device))
        longest = [
            2 * len(rollout.prompts[a // rollout.group_size])
            + 2 * max(rollout.responses[row].num_tokens for row in (a, b))
            for a, b in pairs_N2.tolist()
        ]
        rewards: list[Tensor] = []

        def loss_of(indices: list[int]) -> Tensor:
            rows_n = pairs_N2[indices].flatten()
            responses = responses_of(rollout, rows_n)
            ratio_n, logp_nT = log_ratios(
                self.policy, self.reference, responses, self.sampling.temperature
            )
            if is_first_update:
                sampler_nT = rollout.logp_sampler_BT[rows_n, : logp_nT.shape[1]]
                update_metrics.add_mismatch(logp_nT, sampler_nT, responses.mask_BT)
            reward_N2 = self.dpo.beta * ratio_n.view(-1, 2)
            rewards.append(reward_N2.detach())
            return has_pairs * self.dpo.loss_N(reward_N2).sum() / (num_pairs or 1.0)

        chunks = split_by_length(longest, self.micro_batch_tokens)
        losses = [partial(loss_of, indices) for indices in chunks]
        loss, norm = self.make_update(self.policy_optimizer, losses)
        metrics = {"train/loss": loss, "train/grad_norm": norm, "train/num_pairs": num_pairs}
        return metrics | (pair_metrics(torch.cat(rewards)) if has_pairs else {})


def best_and_worst(rollout: Rollout, rows_b: Tensor) -> tuple[Tensor, bool]:
    """Return the rows of each group's best and worst response ``[N, 2]``, and whether there are.

    Groups of equal rewards are left out. Where no group is left, one pair is returned all the same,
    of a response with itself: ranks make their passes together.
    """
    rows_NG = rows_b.view(-1, rollout.group_size)
    reward_NG = rollout.reward_PG.flatten()[rows_NG]
    ends_N2 = torch.stack([reward_NG.argmax(-1), reward_NG.argmin(-1)], -1)
    pairs_N2 = rows_NG.gather(1, ends_N2)
    differ_N = reward_NG.amax(-1) > reward_NG.amin(-1)
    if bool(differ_N.any()):
        return pairs_N2[differ_N], True
    return rows_NG[:1, :1].expand(1, 2), False
