"""A reward function for problems of some kinds alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from r1lit.batches import Response
from r1lit.errors import check_at_least
from r1lit.rewards.base import RewardFunction, StepRewards
from r1lit.rewards.plain import Reward, as_reward


class ConditionalReward(RewardFunction):
    """``reward`` for problems whose ``meta["kind"]`` is one of ``kinds``, and 0 for all others.

    R1's second RL stage adds rules for reasoning and reward models for general prompts (Nature
    645:633, Eq. 8-10), and adds preference rewards in its last 400 of 1,700 steps. Before
    training iteration ``from_iteration`` the reward is 0 and not computed; in evaluation it
    always is. Name and weight are those of ``reward``. Its logged mean is over all responses, with
    the zeros: unweighted, what it adds to the mean reward.

    Args:
        reward: a reward function or a plain callable; it gets only the responses of these kinds.
        kinds: of problems; every problem if left out.
        from_iteration: the first training iteration in which it counts, from 0.
    """

    def __init__(
        self, reward: Reward, kinds: list[str] | None = None, from_iteration: int = 0
    ) -> None:
        self.reward = as_reward(reward)
        super().__init__(self.reward.weight)
        self.name = self.reward.name
        if kinds is not None and not kinds:
            raise ValueError("kinds: an empty list leaves no problem; null means every problem")
        check_at_least("from_iteration", from_iteration, 0, "0 is the first one")
        self.kinds = None if kinds is None else frozenset(kinds)
        self.from_iteration = max(from_iteration, self.reward.from_iteration)

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return the reward of each response, 0 for other kinds.

        Raises:
            ValueError: if ``kinds`` are given and a problem has none, or if the reward does not
                return one number a response.
        """
        rows = [row for row, response in enumerate(responses) if self._is_of_kinds(response)]
        values: Any = self.reward([responses[row] for row in rows]) if rows else []
        if values is None or len(values) != len(rows):
            raise ValueError(
                f"reward function {self.name!r} returned {values!r:.80} for {len(rows)} responses"
            )
        rewards = [0.0] * len(responses)
        for row, value in zip(rows, values, strict=True):
            rewards[row] = value
        return rewards

    def step_rewards(self, responses: Sequence[Response]) -> list[StepRewards] | None:
        """Return the rewards of steps, none for other kinds."""
        rows = [row for row, response in enumerate(responses) if self._is_of_kinds(response)]
        given = self.reward.step_rewards([responses[row] for row in rows])
        if given is None:
            return None
        own = dict(zip(rows, given, strict=True))
        return [own.get(row, StepRewards()) for row in range(len(responses))]

    def applies(self, response: Response) -> bool:
        """Return whether the problem is of ``kinds`` and ``reward`` applies.

        Raises:
            ValueError: if ``kinds`` are given and the problem has none.
        """
        return self._is_of_kinds(response) and self.reward.applies(response)

    def _is_of_kinds(self, response: Response) -> bool:
        if self.kinds is None:
            return True
        problem = response.problem
        kind = problem.meta.get("kind")
        if kind is None:
            raise ValueError(
                f"kinds: problem {problem.uid!r} of source {problem.source!r} has no kind in its"
                f" meta, so the reward {self.name!r} cannot tell whether it applies; a table's"
                " column is kept by meta: [kind]"
            )
        return kind in self.kinds
