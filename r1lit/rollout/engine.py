"""What a rollout engine is: it turns prompts into groups of responses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from transformers import PreTrainedTokenizerBase

from r1lit.batches import Generation
from r1lit.policy import Policy
from r1lit.rollout.sampling import Sampling

OnEnd = Callable[[Sequence[int], Sequence[Sequence[int]]], None]
"""Takes rows that have finished, and the tokens of each through its EOS or stop string."""


class RolloutEngine(ABC):
    """Draws responses from a policy."""

    @abstractmethod
    def generate(
        self,
        policy: Policy,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        sampling: Sampling,
        seed: int,
        iteration: int,
        samples: Sequence[int],
        on_end: OnEnd | None = None,
    ) -> Generation:
        """Draw ``group_size`` responses to each of P prompts: B = P * G rows, prompt-major.

        Row ``b`` is sample ``samples[b]`` of its iteration. Its tokens are a function of
        (seed, iteration, sample) and of its prompt, up to the rounding of logits.

        ``on_end`` is told of rows as they finish, each at most once, from this thread. An engine
        that cannot tell tells nothing; rows cut at the token limit are not told of either.
        """
