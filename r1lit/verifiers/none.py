"""Problems that no rule decides: a greeting, a translation, a request to refuse."""

from __future__ import annotations

import time

from r1lit.problems import Problem, Verdict
from r1lit.verifiers.base import Verifier, conclude


class NoVerifier(Verifier):
    """Decides nothing: every response is ``unparsed``, never right, and casts no vote.

    For general prompts, whose reward comes from a reward model and not from an answer.
    """

    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Return the verdict that there is none."""
        return conclude("unparsed", None, "no rule decides about this problem", time.perf_counter())
