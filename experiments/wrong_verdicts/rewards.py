"""Accuracy as a verifier with known error rates would pay it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from r1lit.problems import Response
from r1lit.rewards import RewardFunction
from r1lit.seeding import generator


class MistakenVerdict(RewardFunction):
    """The verdict's value, wrong at known rates.

    Which verdicts are wrong is drawn from the problem and, unless ``by`` is "problem", the text, so
    a resumed run makes the same mistakes and a repeated response gets the same reward.

    Args:
        weight: multiplies the reward.
        false_positives: share of the wrong responses that are paid, from 0 to 1.
        false_negatives: share of the right responses that are not paid, from 0 to 1.
        by: "response" draws for each response; "problem" draws once for a problem, so that all its
            wrong (or right) responses are misjudged, as a wrong reference answer would do.
        pattern: pay every wrong response that this regular expression finds, and draw no others.
    """

    def __init__(
        self,
        weight: float = 1.0,
        false_positives: float = 0.0,
        false_negatives: float = 0.0,
        by: Literal["response", "problem"] = "response",
        pattern: str | None = None,
    ) -> None:
        super().__init__(weight)
        rates = {"false_positives": false_positives, "false_negatives": false_negatives}
        for key, rate in rates.items():
            if not 0 <= rate <= 1:
                raise ValueError(f"{key}: {rate} is not a share from 0 to 1")
        if pattern is not None and false_positives > 0:
            raise ValueError(
                f"false_positives: {false_positives} and pattern: {pattern!r} exclude each other;"
                " leave one out"
            )
        self.false_positives = false_positives
        self.false_negatives = false_negatives
        self.by = by
        self.pattern = None if pattern is None else re.compile(pattern)

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return 1.0 for what this verifier takes as right, else 0.0."""
        return [float(self._is_paid(response)) for response in responses]

    def _is_paid(self, response: Response) -> bool:
        is_right = response.verdict.value > 0
        if self.pattern is not None and not is_right:
            return self.pattern.search(response.text) is not None
        rate = self.false_negatives if is_right else self.false_positives
        drawn_for = (response.problem.uid, response.text if self.by == "response" else "")
        is_mistaken = generator(0, "mistaken_verdict", *drawn_for).random() < rate
        return is_right != bool(is_mistaken)
