"""A verifier whose verdicts come late, as those of tests or of a person do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from r1lit.problems import Problem, Verdict
from r1lit.verifiers import ExactVerifier


class SlowExact(ExactVerifier):
    """`ExactVerifier`, each of whose calls takes ``delay_s`` seconds of the clock.

    Args:
        delay_s: of each call, for one response or several that ended together.
        num_workers: how many calls there are at once.
    """

    in_background = True

    def __init__(self, delay_s: float = 0.0, num_workers: int = 128) -> None:
        self.delay_s = delay_s
        self.num_workers = num_workers

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Wait, then decide about all."""
        time.sleep(self.delay_s)
        verdicts = super().verify_batch(responses, problems)
        return [replace(v, seconds=v.seconds + self.delay_s) for v in verdicts]
