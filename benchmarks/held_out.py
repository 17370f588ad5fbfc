"""Held-out pass@1 of a policy, the same for both sides and outside of the clock."""

from __future__ import annotations

from typing import Any

from benchmarks import problems
from benchmarks.devices import autocast
from benchmarks.ours import make_requests
from benchmarks.work import Work
from r1lit.data.packing import encode_prompts, prompt_text
from r1lit.policy import load_tokenizer
from r1lit.rollout import InProcessEngine, ModelSpec, texts_of
from r1lit.verifiers import Grader

GROUP_SIZE = 16
SEED = 1 << 20


class HeldOut:
    """Evaluates every few iterations: the mean accuracy of 16 responses to each problem."""

    def __init__(self, work: Work, every: int) -> None:
        self.work = work
        self.every = every
        self.num_iterations = 0
        self.tokenizer = load_tokenizer(work.model)
        self.problems = [p for source in problems.held_out_sources() for p in source.problems()]
        texts = [
            prompt_text(self.tokenizer, problems.TEMPLATE, problem.question)
            for problem in self.problems
        ]
        self.prompts = encode_prompts(self.tokenizer, texts)
        self.engine = InProcessEngine()
        self.grader = Grader()

    def __call__(self, policy: Any) -> dict[str, float]:
        """Return pass@1 if it is time, after one more iteration."""
        self.num_iterations += 1
        if self.num_iterations % self.every:
            return {}
        return {"pass_at_1": self.pass_at_1(policy)}

    def pass_at_1(self, policy: Any) -> float:
        """Return the share of right responses."""
        requests = make_requests(
            self.prompts, GROUP_SIZE, self.work, SEED, iteration=self.num_iterations
        )
        self.engine.bind(ModelSpec(name=self.work.model, tokenizer=self.tokenizer, policy=policy))
        with autocast(self.work.precision, self.work.device):
            texts = texts_of(self.engine.generate(requests), self.tokenizer)
        asked = [problem for problem in self.problems for _ in range(GROUP_SIZE)]
        verdicts = self.grader.verdicts(texts, asked)
        return sum(verdict.value for verdict in verdicts) / len(asked)
