"""A format reward for thinking between special tokens."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.batches import Response
from r1lit.rewards.base import RewardFunction
from r1lit.rewards.rules import is_visible


class SpecialTokenFormat(RewardFunction):
    """1 if the response is ``token<reasoning_process>token<summary>``, else 0.

    R1's cold start prints ``|special_token|<reasoning_process>|special_token|<summary>``: the token
    stands twice, the first time at the very start, and the summary has something visible in it. It
    must be text to the tokenizer or an added token that is not special, as special tokens are left
    out of responses when they are decoded.

    Args:
        token: the text of the token.
        think_prefilled: the prompt template ended in the first token, so the response has only the
            second.
        weight: multiplies the reward.
    """

    name = "special_token_format"

    def __init__(
        self, token: str = "|special_token|", weight: float = 1.0, think_prefilled: bool = False
    ) -> None:
        super().__init__(weight)
        if not token.strip():
            raise ValueError(f"token: {token!r} has nothing visible in it")
        self.token = token
        self.think_prefilled = think_prefilled

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return 1.0 or 0.0 a response."""
        return [float(self._has_format(response.text)) for response in responses]

    def _has_format(self, text: str) -> bool:
        parts = (self.token + text if self.think_prefilled else text).split(self.token)
        return len(parts) == 3 and not parts[0].strip() and is_visible(parts[2])
