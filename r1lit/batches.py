"""Data of one iteration, from problem to rollout.

Shape letters, used in every name in this package:

    P prompts   G responses per prompt   B = P*G rows, prompt-major
    S prompt tokens   T response tokens   V vocabulary

Letters written together mean flattened: row ``b`` answers prompt ``b // G``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from r1lit.problems import Problem, Response, Status, Verdict

__all__ = [
    "Candidates",
    "PackedRows",
    "PreferenceBatch",
    "Problem",
    "PromptBatch",
    "Response",
    "Rollout",
    "Status",
    "TokenValues",
    "Verdict",
    "join_rollouts",
    "of_all_ranks",
    "of_first_rank",
    "own_rank",
    "take_groups",
]

T = TypeVar("T")


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
        """Return those of several sequences of tokens, one after the other."""
        return cls(
            ids_N=torch.cat([part.ids_N for part in parts]),
            num_K=torch.cat([part.num_K for part in parts]),
        )

    @classmethod
    def alone(cls, token_K: Tensor) -> Candidates:
        """Return tokens that nothing else could have been."""
        return cls(ids_N=token_K.int().cpu(), num_K=torch.ones(len(token_K), dtype=torch.int32))

    def split(self, sizes: Sequence[int]) -> list[Candidates]:
        """Return those of the first so many tokens, of the next so many, and so on."""
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
    addition; ``step_end_BT`` is true where they are of steps that end there; ``value_BT`` a
    critic's values before each token, and ``return_BT`` what it learns; ``correction_BT`` is what a
    correction weighs the tokens by; ``is_selected_BT`` are the tokens that an objective treats
    apart; ``version_BT`` counts the updates of the weights that sampled each token, -1 where the
    engine does not report them. ``candidates``, host data, has those of each row's tokens where
    top-k or top-p left tokens out: all log-probs are then among them.
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
    value_BT: Tensor | None = None
    return_BT: Tensor | None = None
    correction_BT: Tensor | None = None
    is_selected_BT: Tensor | None = None
    version_BT: Tensor | None = None
    environment_BT: Tensor | None = None
    candidates: tuple[Candidates, ...] | None = None

    def __post_init__(self) -> None:
        num_rows = len(self.prompts) * self.group_size
        shape = self.response_BT.shape
        assert len(self.responses) == num_rows == shape[0], (len(self.responses), num_rows, shape)
        assert self.candidates is None or len(self.candidates) == num_rows
        assert self.length_B.shape == shape[:1] and not self.length_B.is_floating_point()
        assert str(self.loss_mask_BT.dtype) == "torch.bool"
        for field in fields(self):
            values_BT = getattr(self, field.name) if field.name.endswith("_BT") else None
            assert values_BT is None or values_BT.shape == shape, (field.name, values_BT.shape)
        assert self.reward_PG.shape == (len(self.prompts), self.group_size)
        assert all(reward.shape == self.reward_PG.shape for reward in self.rewards.values())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Rollout:
        """Return a copy with its tensors on ``device``."""

        def moved(values: Mapping[str, Any]) -> dict[str, Tensor]:
            tensors = {name: x for name, x in values.items() if isinstance(x, Tensor)}
            return {name: x.to(device, non_blocking=non_blocking) for name, x in tensors.items()}

        return replace(self, rewards=moved(self.rewards), **moved(vars(self)))  # type: ignore[arg-type]

    @property
    def num_prompts(self) -> int:
        """P, the number of groups."""
        return len(self.prompts)

    @property
    def mask_BT(self) -> Tensor:
        """Which tokens exist: true up to each response's length."""
        number_T = self.length_B.new_ones(self.response_BT.shape[1]).cumsum(0)
        return number_T <= self.length_B[:, None]

    @property
    def sampled_BT(self) -> Tensor:
        """Which tokens the policy has sampled: those that exist and are not an environment's."""
        if self.environment_BT is None:
            return self.mask_BT
        return self.mask_BT & ~self.environment_BT

    @property
    def num_sampled_B(self) -> Tensor:
        """How many tokens of each response the policy has sampled."""
        return self.length_B if self.environment_BT is None else self.sampled_BT.sum(-1)

    @property
    def is_right_B(self) -> Tensor:
        """Which responses are right."""
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


PER_ROW = (
    *("response_BT", "length_B", "loss_mask_BT"),
    *("logp_sampler_BT", "logp_old_BT", "advantage_BT"),
)
OPTIONAL = ("reward_BT", "step_end_BT", "version_BT", "environment_BT")


def take_groups(rollout: Rollout, groups: Sequence[int]) -> Rollout:
    """Return the rollout of some of the groups."""
    assert rollout.value_BT is None and rollout.correction_BT is None
    size = rollout.group_size
    rows = [p * size + g for p in groups for g in range(size)]
    index_P = torch.tensor(list(groups), dtype=torch.long, device=rollout.reward_PG.device)
    index_B = torch.tensor(rows, dtype=torch.long, device=rollout.response_BT.device)
    return replace(
        rollout,
        prompts=tuple(rollout.prompts[p] for p in groups),
        responses=tuple(rollout.responses[b] for b in rows),
        rewards={name: reward[index_P] for name, reward in rollout.rewards.items()},
        reward_PG=rollout.reward_PG[index_P],
        candidates=rollout.candidates and tuple(rollout.candidates[b] for b in rows),
        **{name: getattr(rollout, name)[index_B] for name in _per_row(rollout)},
    )


def join_rollouts(rollouts: Sequence[Rollout]) -> Rollout:
    """Put rollouts of one iteration below each other, padded to the longest response."""
    first = rollouts[0]
    assert all(r.value_BT is None and r.correction_BT is None for r in rollouts)
    if len(rollouts) == 1:
        return first
    assert all(r.iteration == first.iteration for r in rollouts)
    assert all(r.group_size == first.group_size for r in rollouts)
    width = max(r.response_BT.shape[1] for r in rollouts)
    names = dict.fromkeys(name for r in rollouts for name in _per_row(r))

    def joined(name: str) -> Tensor:
        given = [getattr(r, name) for r in rollouts]
        dtype = next(t.dtype for t in given if t is not None)
        parts = [
            torch.zeros_like(r.response_BT, dtype=dtype) if t is None else t
            for r, t in zip(rollouts, given, strict=True)
        ]
        if parts[0].ndim == 2:
            parts = [nn.functional.pad(t, (0, width - t.shape[1])) for t in parts]
        return torch.cat(parts)

    return replace(
        first,
        prompts=tuple(p for r in rollouts for p in r.prompts),
        responses=tuple(x for r in rollouts for x in r.responses),
        rewards={name: torch.cat([r.rewards[name] for r in rollouts]) for name in first.rewards},
        reward_PG=torch.cat([r.reward_PG for r in rollouts]),
        candidates=first.candidates and tuple(c for r in rollouts for c in r.candidates or ()),
        **{name: joined(name) for name in names},  # type: ignore[arg-type]
    )


def _per_row(rollout: Rollout) -> list[str]:
    return [*PER_ROW, *(name for name in OPTIONAL if getattr(rollout, name) is not None)]


@dataclass(frozen=True, kw_only=True)
class TokenValues:
    """The training forward's outputs on a rollout's first rows, before any update.

    ``logp_BT`` are log-probs of the tokens, ``entropy_BT`` entropies in nats; 0 in the padding.
    """

    logp_BT: Tensor
    entropy_BT: Tensor


@dataclass(frozen=True, kw_only=True)
class PackedRows:
    """Rows of documents packed end to end for supervised training.

    ``input_ids_RL`` holds R rows of L tokens; ``position_ids_RL`` restarts at 0 at each document,
    which is how attention is kept within it; ``loss_mask_RL`` is true at the tokens whose
    prediction counts. ``iteration`` is the index of the batch in the run.
    """

    iteration: int
    input_ids_RL: Tensor
    position_ids_RL: Tensor
    loss_mask_RL: Tensor

    def __post_init__(self) -> None:
        shape = self.input_ids_RL.shape
        assert self.input_ids_RL.ndim == 2, shape
        assert self.position_ids_RL.shape == shape
        assert self.loss_mask_RL.shape == shape and self.loss_mask_RL.dtype == torch.bool

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PackedRows:
        """Return a copy on ``device``."""
        return PackedRows(
            iteration=self.iteration,
            input_ids_RL=self.input_ids_RL.to(device, non_blocking=non_blocking),
            position_ids_RL=self.position_ids_RL.to(device, non_blocking=non_blocking),
            loss_mask_RL=self.loss_mask_RL.to(device, non_blocking=non_blocking),
        )


@dataclass(frozen=True, kw_only=True)
class PreferenceBatch:
    """Examples that a reward model learns from: N of them, each of K rows of token ids.

    K is 2 for pairs, chosen first, and 1 for labelled responses. ``lengths`` counts the tokens of
    each row's response, prompt and EOS left out. ``label_N`` is 1 for a pair and for a safe
    response, 0 for an unsafe one. ``groups`` name what examples share, such as a prompt.

    Where steps are labelled, ``step_places`` are each example's tokens at which its steps end, by
    their index in its only row, and ``step_labels`` their labels.
    """

    iteration: int
    rows: tuple[tuple[tuple[int, ...], ...], ...]
    lengths: tuple[tuple[int, ...], ...]
    label_N: Tensor
    groups: tuple[str, ...]
    step_places: tuple[tuple[int, ...], ...] = ()
    step_labels: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        num = len(self.rows)
        assert num == len(self.lengths) == len(self.groups) and self.label_N.shape == (num,)
        assert len({len(rows) for rows in self.rows}) <= 1, "all examples are of one kind"

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PreferenceBatch:
        """Return itself: rows are plain integers, the module pads and places them."""
        return self


def of_all_ranks(own: T) -> list[T]:
    """Return what each rank holds of something, in their order; ``[own]`` in a single process.

    All ranks call it. Tensors should be on the CPU.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return [own]
    ranks: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(ranks, own)
    return ranks


def of_first_rank(own: T) -> T:
    """Return what rank 0 holds of something; all ranks call it."""
    return of_all_ranks(own)[0]


def own_rank() -> int:
    """Return this process's rank, 0 if it is alone."""
    is_alone = not (distributed.is_available() and distributed.is_initialized())
    return 0 if is_alone else distributed.get_rank()
