"""Data of one iteration, from problem to rollout.

Shape letters, used in every name in this package:

    P prompts   G responses per prompt   B = P*G rows, prompt-major
    S prompt tokens   T response tokens   V vocabulary

Letters written together mean flattened: row ``b`` answers prompt ``b // G``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from r1lit.problems import Problem, Response, Status, Verdict

__all__ = [
    "Candidates",
    "Problem",
    "PromptBatch",
    "Response",
    "Rollout",
    "Status",
    "TokenValues",
    "Verdict",
]


@dataclass(frozen=True, kw_only=True)
class PromptBatch:
    """The prompts of one iteration.

    The first ``num_prompts`` (P) are rolled out; the rest are a reserve for dynamic
    sampling. ``prompts`` holds token ids, one tuple a problem. ``positions`` are the problems'
    places in the whole iteration, over all ranks; they name the samples of their groups.
    """

    iteration: int
    problems: tuple[Problem, ...]
    prompts: tuple[tuple[int, ...], ...]
    group_size: int
    num_prompts: int
    positions: tuple[int, ...]

    def __post_init__(self) -> None:
        assert len(self.problems) == len(self.prompts) == len(self.positions)
        assert 1 <= self.num_prompts <= len(self.problems), self.num_prompts
        assert self.group_size >= 1, self.group_size

    def samples(self, rows: Sequence[int]) -> list[int]:
        """Return the sample indices of the groups of problems ``rows``, prompt-major."""
        size = self.group_size
        return [self.positions[p] * size + g for p in rows for g in range(size)]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PromptBatch:
        """Return itself: prompts are plain integers, the engine places them."""
        return self


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The tokens among which each of K tokens was sampled, where top-k and top-p left others out.

    ``num_K`` says how many they were, and ``ids_N`` (int32) has them, those of the first token
    first. Both are on the host.
    """

    ids_N: Tensor
    num_K: Tensor

    def __post_init__(self) -> None:
        assert int(self.num_K.sum()) == len(self.ids_N), (self.num_K, self.ids_N.shape)

    @classmethod
    def joined(cls, parts: Sequence[Candidates]) -> Candidates:
        """Return the candidates of several sequences of tokens, one after the other."""
        return cls(
            ids_N=torch.cat([part.ids_N for part in parts]),
            num_K=torch.cat([part.num_K for part in parts]),
        )

    @classmethod
    def alone(cls, token_K: Tensor) -> Candidates:
        """Return tokens that nothing else could have been."""
        return cls(ids_N=token_K.int().cpu(), num_K=torch.ones(len(token_K), dtype=torch.int32))

    def split(self, sizes: Sequence[int]) -> list[Candidates]:
        """Return the candidates of the first so many tokens, of the next so many, and so on."""
        num = self.num_K.split(list(sizes))
        ids = self.ids_N.split([int(num_k.sum()) for num_k in num])
        return [Candidates(ids_N=i, num_K=n) for i, n in zip(ids, num, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """P groups of G responses: tokens, log-probs, rewards and advantages.

    ``prompts`` (P of them) and ``responses`` (B, prompt-major) are host data; tensors live on the
    policy's device. ``reward_PG`` is the weighted sum of ``rewards``, each unweighted and by name.

    ``length_B`` says which tokens exist (``mask_BT``), EOS included. An environment has written
    those of ``environment_BT``, and the policy has sampled all others (``sampled_BT``): log-probs,
    rewards and advantages are of sampled tokens alone. ``loss_mask_BT`` says which of these count
    in the loss: a truncated response may be left out.
    ``logp_sampler_BT`` are log-probs as sampled; ``logp_old_BT`` those that ratios start from, the
    same unless a correction has the trainer compute them again. ``advantage_BT`` is per token.

    Optional: ``reward_BT`` are rewards of single tokens; ``reward_PG`` comes with the last one in
    addition; ``step_end_BT`` is true where they are of steps that end there; ``weight_BT`` weighs
    the surrogate of each token; ``version_BT`` counts the updates of the weights that sampled each
    token, -1 where the engine does not report them. ``candidates``, host data, has those of each
    row's tokens where top-k or top-p left tokens out: all log-probs are then among them.
    ``extra_BT`` holds what steps have written for others, by name, such as a critic's ``value_BT``.
    """

    iteration: int
    group_size: int
    prompts: tuple[tuple[int, ...], ...]
    responses: tuple[Response, ...]
    response_BT: Tensor
    length_B: Tensor
    loss_mask_BT: Tensor
    logp_sampler_BT: Tensor
    logp_old_BT: Tensor
    rewards: Mapping[str, Tensor]
    reward_PG: Tensor
    advantage_BT: Tensor
    reward_BT: Tensor | None = None
    step_end_BT: Tensor | None = None
    weight_BT: Tensor | None = None
    version_BT: Tensor | None = None
    environment_BT: Tensor | None = None
    candidates: tuple[Candidates, ...] | None = None
    extra_BT: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        num_rows = len(self.prompts) * self.group_size
        shape = self.response_BT.shape
        assert len(self.responses) == num_rows == shape[0], (len(self.responses), num_rows, shape)
        assert self.candidates is None or len(self.candidates) == num_rows
        assert self.length_B.shape == shape[:1] and not self.length_B.is_floating_point()
        assert str(self.loss_mask_BT.dtype) == "torch.bool"
        for name, value_BT in {**vars(self), **self.extra_BT}.items():
            if name.endswith("_BT") and isinstance(value_BT, Tensor):
                assert value_BT.shape == shape, (name, value_BT.shape)
        assert self.reward_PG.shape == (len(self.prompts), self.group_size)
        assert all(reward.shape == self.reward_PG.shape for reward in self.rewards.values())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Rollout:
        """Return a copy with its tensors on ``device``."""

        def moved(values: Mapping[str, Any]) -> dict[str, Tensor]:
            tensors = {name: x for name, x in values.items() if isinstance(x, Tensor)}
            return {name: x.to(device, non_blocking=non_blocking) for name, x in tensors.items()}

        mappings = {"rewards": moved(self.rewards), "extra_BT": moved(self.extra_BT)}
        return replace(self, **mappings, **moved(vars(self)))  # type: ignore[arg-type]

    def extra(self, name: str, reader: str) -> Tensor:
        """Return the numbers that a step has written under a name, ``[B, T]``.

        Raises:
            ValueError: naming ``reader``, if none has.
        """
        if name not in self.extra_BT:
            written = ", ".join(self.extra_BT) or "nothing"
            raise ValueError(
                f"{reader} reads {name} of the rollout, and steps have written {written}; put the"
                " step that writes it into model.steps"
            )
        return self.extra_BT[name]

    @property
    def num_prompts(self) -> int:
        """P, the number of groups."""
        return len(self.prompts)

    @property
    def mask_BT(self) -> Tensor:
        """Mask of the tokens that exist: true up to each response's length."""
        number_T = self.length_B.new_ones(self.response_BT.shape[1]).cumsum(0)
        return number_T <= self.length_B[:, None]

    @property
    def sampled_BT(self) -> Tensor:
        """Mask of the sampled tokens: those that exist and are not an environment's."""
        if self.environment_BT is None:
            return self.mask_BT
        return self.mask_BT & ~self.environment_BT

    @property
    def num_sampled_B(self) -> Tensor:
        """Number of tokens of each response that the policy has sampled."""
        return self.length_B if self.environment_BT is None else self.sampled_BT.sum(-1)

    @property
    def is_right_B(self) -> Tensor:
        """Mask of the right responses."""
        right = [response.verdict.status == "right" for response in self.responses]
        return torch.tensor(right, device=self.length_B.device)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The P problems, in order."""
        return tuple(r.problem for r in self.responses[:: self.group_size])

    def groups(self) -> list[tuple[Response, ...]]:
        """The responses as P tuples of G."""
        size = self.group_size
        return [self.responses[p * size : (p + 1) * size] for p in range(self.num_prompts)]


@dataclass(frozen=True, kw_only=True)
class TokenValues:
    """The training forward's outputs on a rollout's first rows, before any update.

    ``logp_BT`` are log-probs of the tokens, ``entropy_BT`` entropies in nats; 0 in the padding.
    """

    logp_BT: Tensor
    entropy_BT: Tensor
