"""Scorers: numbers that say how promising a response is, whole or partial; larger is better."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from r1lit.batches import Response, Verdict
from r1lit.errors import check_at_least
from r1lit.policy.scalar_head import score_rows
from r1lit.policy.scalar_loading import FrozenScorer
from r1lit.policy.source import ModelSource
from r1lit.rewards import RewardFunction, score
from r1lit.search.generation import PartialResponse
from r1lit.seeding import generator
from r1lit.verifiers import DefaultVerifiers, Grader

UNGRADED = Verdict(value=0.0, status="unparsed", canonical=None, reason="not graded in a search")


class Scorer(ABC):
    """Scores responses. A subclass defines ``score``."""

    @abstractmethod
    def score(self, responses: Sequence[PartialResponse]) -> list[float]:
        """Return one finite number a response, in order."""

    def check(self, tokenizer: PreTrainedTokenizerBase) -> None:  # noqa: B027 - most read texts
        """Check that it can read the responses of a policy with this tokenizer.

        Raises:
            ValueError: if it cannot.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release worker processes, if any."""


class VerifierScorer(Scorer):
    """The verdict's value where a response has ended, and 0 before: an oracle, as for pass@n.

    Args:
        grader: decides; the default of an evaluation if left out. It is the search's own, because
            the evaluation grades in another thread meanwhile.
    """

    def __init__(self, grader: Grader | None = None) -> None:
        self.grader = grader or Grader(DefaultVerifiers(last_expression=True))

    def score(self, responses: Sequence[PartialResponse]) -> list[float]:
        """Return one number from 0 to 1 a response."""
        rows = [row for row, response in enumerate(responses) if response.finished]
        verdicts = self.grader.verdicts(
            [responses[row].text for row in rows], [responses[row].query.problem for row in rows]
        )
        values = {row: verdict.value for row, verdict in zip(rows, verdicts, strict=True)}
        return [values.get(row, 0.0) for row in range(len(responses))]

    def close(self) -> None:
        """Release the verifiers' worker processes."""
        self.grader.close()


class RewardScorer(Scorer):
    """A reward function's unweighted reward: of an outcome reward model, or of any other function.

    It gets partial responses as cut ones, and no verdicts.

    Args:
        reward: such as ``r1lit.rewards.RewardModel``.
    """

    def __init__(self, reward: RewardFunction) -> None:
        self.reward = reward

    def score(self, responses: Sequence[PartialResponse]) -> list[float]:
        """Return one number a response."""
        seen = [
            Response(
                text=response.text,
                problem=response.query.problem,
                verdict=UNGRADED,
                num_tokens=len(response.token_ids),
                finished=response.finished,
            )
            for response in responses
        ]
        return score([self.reward], seen)[0][self.reward.name]


class ValueScorer(Scorer):
    """A scalar model read at the last token of prompt and response: a critic, or a process model.

    A critic's value there is of what comes next, so that a response that ended is read before its
    end token. Steps' scores are combined by the search (``aggregate``).

    The weights are loaded at the first call and never trained.

    Args:
        model: a directory of a sequence classifier of one number, with the policy's tokenizer.
        batch_tokens: of one forward pass, padding included.
        device: where it is computed; the current GPU if there is one.
    """

    def __init__(
        self,
        model: str | ModelSource,
        batch_tokens: int = 16384,
        device: str | None = None,
    ) -> None:
        self._scorer = FrozenScorer(model, batch_tokens, device)
        source = self._scorer.source
        self.path, self.attention = source.path, source.attention
        self.batch_tokens = batch_tokens
        self.dtype = source.dtype or "float32"

    def check(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Check that it means the same by a token id as the policy.

        Raises:
            ValueError: if it does not.
        """
        if self._scorer.tokenizer.get_vocab() != tokenizer.get_vocab():
            raise ValueError(
                f"model: the tokenizer of {self.path!r} is not the policy's, and a ValueScorer"
                " reads the policy's token ids; RewardScorer takes a model with another tokenizer"
            )

    def score(self, responses: Sequence[PartialResponse]) -> list[float]:
        """Return one value a response."""
        rows = [
            (*r.query.prompt, *(r.token_ids[:-1] if r.finished else r.token_ids)) for r in responses
        ]
        values: list[float] = score_rows(self._scorer.model, rows, self.batch_tokens).tolist()
        return values


class Sigmoid(Scorer):
    """Another scorer's numbers between 0 and 1, as weights (weighted best-of-n) and PUCT need them.

    Args:
        scorer: whose numbers are any.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def score(self, responses: Sequence[PartialResponse]) -> list[float]:
        """Return 1 / (1 + exp(-score)) of each response."""
        return [(1 + math.tanh(value / 2)) / 2 for value in self.scorer.score(responses)]

    def check(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Check the other scorer."""
        self.scorer.check(tokenizer)

    def close(self) -> None:
        """Close the other scorer."""
        self.scorer.close()


class Noisy(Scorer):
    """Another scorer with normal noise added, to see where a wider search turns worse.

    The noise is a function of ``seed``, prompt and response, as a model's errors are: a repeated
    call, in another search too, gives the same score.

    Args:
        scorer: the one without noise.
        std: the noise's standard deviation.
        seed: of the noise.
    """

    def __init__(self, scorer: Scorer, std: float, seed: int = 0) -> None:
        check_at_least("std", std, 0)
        self.scorer = scorer
        self.std = std
        self.seed = seed

    def score(self, responses: Sequence[PartialResponse]) -> list[float]:
        """Return the scorer's numbers with noise."""
        return [
            value + self.std * self._noise(response)
            for value, response in zip(self.scorer.score(responses), responses, strict=True)
        ]

    def _noise(self, response: PartialResponse) -> float:
        ids = repr((response.query.prompt, response.token_ids))
        return float(generator(self.seed, "scorer noise", ids).standard_normal())

    def check(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Check the other scorer."""
        self.scorer.check(tokenizer)

    def close(self) -> None:
        """Close the other scorer."""
        self.scorer.close()
