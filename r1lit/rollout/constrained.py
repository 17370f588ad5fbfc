"""Constrained decoding: JSON that fits its problem's schema by construction, for evaluation alone.

Log-probs are then of the tokens that the schema leaves, not the policy's, so training refuses it.

R rows not yet removed   B rows   T response tokens   V vocabulary
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from r1lit.problems import Problem
from r1lit.rollout.engine import Capabilities, ModelSpec
from r1lit.rollout.in_process import Batch, Constraint, InProcessEngine
from r1lit.rollout.request import OnFinished, Request

MISSING = (
    "engine: ConstrainedEngine needs the package llguidance 1.9;"
    " pip install 'r1lit[constrained]', or leave the engine out"
)
GRAMMAR = r"""start: SPACE? json SPACE? {end}
SPACE: / |\n/
json: %json {schema}
"""
SPACES = {"whitespace_pattern": r" |\n {0,8}"}
"""One space, or a new line and its indentation: a policy cannot fill its limit with white space."""


class ConstrainedEngine(InProcessEngine):
    """Leaves only tokens that ``meta["schema"]`` of the problem allows (llguidance).

    What stands before ``begin_after`` is free, such as thinking; after it come the object and
    ``end``, then the end token. Responses to problems without a schema are free.

    Args:
        begin_after: the text after which the object stands; empty: it is the whole response.
        end: the text after the object.
        **options: of `InProcessEngine`.
    """

    capabilities = Capabilities(weights="shared", log_probs="constrained")

    def __init__(
        self, begin_after: str = "<answer>", end: str = "</answer>", **options: Any
    ) -> None:
        try:
            import llguidance  # noqa: F401
        except ImportError as error:
            raise ValueError(MISSING) from error
        super().__init__(**options)
        self.begin_after = begin_after
        self.end = end
        self._problems: list[Problem | None] = []

    def bind(self, model: ModelSpec) -> None:
        """Learn the vocabulary of the model's tokenizer."""
        import llguidance.hf

        super().bind(model)
        tokenizer: Any = model.tokenizer
        self._vocabulary = llguidance.hf.from_tokenizer(
            tokenizer, n_vocab=len(tokenizer), eos_token=list(model.end_ids())
        )

    @torch.no_grad()
    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Hand completions over as they end; see ``InProcessEngine.stream``.

        Raises:
            ValueError: also if a schema cannot be decoded by.
        """
        self._problems = [request.problem for request in requests for _ in request.samples]
        super().stream(requests, on_finished)

    def constraint(self, batch: Batch) -> Constraint:
        """Return the function that leaves out the tokens that no schema allows."""
        num = len(batch.indices)
        problems = [self._problems[batch.indices[row % num]] for row in range(len(batch.samples))]
        rows = {
            row: Row(self.matcher(problem), self.begin_after, self.model.end_ids())
            for row, problem in enumerate(problems)
            if problem is not None and "schema" in problem.meta
        }
        tokenizer: Any = self.model.tokenizer

        def constrained(
            logits_RV: Tensor, response_BT: Tensor, row_R: Tensor, token: int
        ) -> Tensor:
            allowed_RV = torch.ones(logits_RV.shape, dtype=torch.bool)
            for place, row in enumerate(row_R.tolist()):
                if row in rows:
                    ids = response_BT[row, :token].tolist()
                    rows[row].allow(ids, tokenizer, allowed_RV[place])
            return logits_RV.masked_fill(~allowed_RV.to(logits_RV.device), float("-inf"))

        return constrained

    def matcher(self, problem: Problem) -> Any:
        """Return the matcher that follows the object of a problem, token by token.

        Raises:
            ValueError: naming the problem, if its schema cannot be decoded by.
        """
        import llguidance

        schema = problem.meta["schema"]
        schema = json.loads(schema) if isinstance(schema, str) else _plain(schema)
        text = json.dumps({**schema, "x-guidance": SPACES})
        grammar = GRAMMAR.format(end=json.dumps(self.end) if self.end else "", schema=text)
        fault = llguidance.LLMatcher.validate_grammar(grammar, self._vocabulary)
        if fault:
            raise ValueError(
                f"meta: schema of problem {problem.uid!r} cannot be decoded by:"
                f" {' '.join(fault.split())[:200]}"
            )
        return llguidance.LLMatcher(self._vocabulary, grammar)


class Row:
    """The state of a response: free until its object begins, then as the schema allows."""

    def __init__(self, matcher: Any, begin_after: str, ends: Sequence[int]) -> None:
        self.matcher = matcher
        self.ends = list(ends)
        self.begin_after = begin_after
        self.begun = not begin_after
        self.num_read = 0

    def allow(self, ids: Sequence[int], tokenizer: Any, allowed_V: Tensor) -> None:
        """Read the tokens since the last call, and mark which may come next."""
        if not self.begun:
            # the text lies within its last tokens, of which each has at least a byte
            tail = ids[-2 * len(self.begin_after.encode()) :]
            self.begun = self.begin_after in tokenizer.decode(tail)
            self.num_read = len(ids)
            if not self.begun:
                return
        if not self.matcher.is_stopped():
            self.matcher.consume_tokens(list(ids[self.num_read :]))
            self.num_read = len(ids)
        allowed_V.fill_(False)
        if self.matcher.is_stopped():  # nothing may follow
            allowed_V[self.ends] = True
            return
        bits = torch.frombuffer(bytearray(self.matcher.compute_bitmask()), dtype=torch.uint8)
        each = ((bits[:, None] >> torch.arange(8)) & 1).flatten()[: len(allowed_V)].bool()
        allowed_V[: len(each)] = each


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
