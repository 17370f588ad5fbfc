"""The problems, prompts and rewards that both sides get.

P prompts   G responses per prompt   B = P*G rows, prompt-major
"""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from benchmarks.work import Work
from r1lit.batches import Problem, Response
from r1lit.data import PromptOptions, R1DataModule, RolloutOptions
from r1lit.data.loaders import PromptLoader, ShuffledSampler
from r1lit.data.packing import encode_prompts, prompt_text
from r1lit.rewards import Accuracy, Format, RewardFunction, score
from r1lit.verifiers import Grader
from r1lit.worlds import WorldChain, WorldCountdown

TEMPLATE = "small_world"
PRIME = 7919


class Spread(RewardFunction):
    """A fixed number a row, different within each group.

    With random weights every answer is wrong, and a group of equal rewards teaches nothing: a side
    that skips such groups would be measured on no work at all.
    """

    name = "spread"

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return a number in [0, 1) a response, by its row alone."""
        return [row * PRIME % 101 / 101 for row in range(len(responses))]


def rewards(work: Work) -> list[RewardFunction]:
    """Return ``configs/mini/r1_zero.yaml``'s rewards, and ``Spread`` where lengths are forced.

    A response cut or stretched to a recorded length earns nothing by itself.
    """
    functions: list[RewardFunction] = [Accuracy(weight=1.0), Format(weight=1.0)]
    return functions if work.lengths is None else [*functions, Spread(weight=1.0)]


def sources() -> list[WorldCountdown | WorldChain]:
    """Return the training problems of ``configs/mini/r1_zero.yaml``."""
    return [
        WorldCountdown(split="train", num_problems=120, min_attempts=30, max_attempts=40),
        WorldChain(split="train", num_problems=60),
    ]


def held_out_sources() -> list[WorldCountdown | WorldChain]:
    """Return the held-out problems of ``configs/mini/r1_zero.yaml``."""
    return [
        WorldCountdown(split="held_out", num_problems=48, min_attempts=30, max_attempts=40),
        WorldChain(split="held_out", num_problems=16),
    ]


def data_module(work: Work, num_iterations: int) -> R1DataModule:
    """Return the data module that feeds r1lit."""
    return R1DataModule(
        train=list(sources()),
        prompts=PromptOptions(template=TEMPLATE),
        rollout=RolloutOptions(prompts_per_iteration=work.num_prompts, group_size=work.group_size),
        num_iterations=num_iterations,
        seed=work.seed,
    )


def prompt_loader(
    work: Work, tokenizer: PreTrainedTokenizerBase, num_iterations: int
) -> PromptLoader:
    """Return the same problems in the same order as ``data_module``, without a trainer."""
    problems = [problem for source in sources() for problem in source.problems()]
    texts = [prompt_text(tokenizer, TEMPLATE, problem.question) for problem in problems]
    return PromptLoader(
        problems,
        encode_prompts(tokenizer, texts),
        ShuffledSampler(len(problems), work.num_prompts, work.seed),
        group_size=work.group_size,
        num_batches=num_iterations,
    )


def total_rewards(
    functions: Sequence[RewardFunction],
    grader: Grader,
    texts: Sequence[str],
    problems: Sequence[Problem],
    num_tokens: Sequence[int],
) -> list[float]:
    """Return the weighted sum of rewards a response, judged as r1lit judges."""
    verdicts = grader.verdicts(texts, problems)
    responses = [
        Response(text=text, problem=problem, verdict=verdict, num_tokens=n, finished=True)
        for text, problem, verdict, n in zip(texts, problems, verdicts, num_tokens, strict=True)
    ]
    return score(functions, responses)[1]
