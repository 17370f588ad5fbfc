"""Graded responses of a policy: what rejection sampling and evaluation start from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from r1lit.curation import Candidate
from r1lit.policy import Policy
from r1lit.problems import Problem, Response
from r1lit.rollout import InProcessEngine, ModelSpec, Request, Sampling
from r1lit.text.prompts import encode_prompts, prompt_text
from r1lit.verifiers import Grader


def sample(
    policy: Policy,
    tokenizer: PreTrainedTokenizerBase,
    grader: Grader,
    template: str,
    problems: Sequence[Problem],
    size: int,
    *,
    sampling: Sampling,
    seed: int = 0,
) -> list[Response]:
    """Return ``size`` responses to each problem, one problem after the other.

    Random numbers are by seed and sample, so no two responses have the same sample: those of one
    number would otherwise give up alike in every problem.
    """
    engine = InProcessEngine(compile=False)
    engine.bind(ModelSpec(name="policy", tokenizer=tokenizer, policy=policy))
    how: Any = {"sampling": sampling, "seed": seed}
    prompts = [prompt_text(tokenizer, template, str(problem.question)) for problem in problems]
    requests = [
        Request(prompt=ids, samples=tuple(range(i * size, (i + 1) * size)), **how)
        for i, ids in enumerate(encode_prompts(tokenizer, prompts))
    ]
    completions = engine.generate(requests)
    asked = [problem for problem in problems for _ in range(size)]
    texts = [tokenizer.decode(c.token_ids.tolist(), skip_special_tokens=True) for c in completions]
    return [
        Response(
            text=text,
            problem=problem,
            verdict=verdict,
            num_tokens=len(completion.token_ids),
            finished=completion.finish_reason == "stop",
        )
        for problem, text, verdict, completion in zip(
            asked, texts, grader.verdicts(texts, asked), completions, strict=True
        )
    ]


def as_candidates(responses: Sequence[Response], size: int) -> list[Candidate]:
    """Return responses as curation takes them, ``size`` to each problem."""
    return [
        Candidate(
            problem=response.problem,
            sample=row % size,
            text=response.text,
            status=response.verdict.status,
            reason=response.verdict.reason,
            num_tokens=response.num_tokens,
            finished=response.finished,
        )
        for row, response in enumerate(responses)
    ]
