"""The problems, prompts, rewards and documents that both sides get.

P prompts   G responses per prompt   B = P*G rows, prompt-major
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from transformers import PreTrainedTokenizerBase

from benchmarks.work import SupervisedWork, Work
from experiments.real_model.sums import Sums
from r1lit.batches import Problem, Response
from r1lit.data import PromptOptions, R1DataModule, RolloutOptions
from r1lit.data.loaders import PromptLoader, ShuffledSampler
from r1lit.data.packing import EncodedDocument, encode_documents, encode_prompts, render_prompt
from r1lit.data.sources import Document, DocumentSource, ProblemSource
from r1lit.rewards import Accuracy, Format, RewardFunction, score
from r1lit.verifiers import Grader, MathVerifier
from r1lit.worlds import WorldChain, WorldCountdown

PRIME = 7919
SMALL_WORLD = PromptOptions(template="small_world")
SUMS = PromptOptions(template="chat", wording="{question} Answer with the number only.")


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
    """Return the rewards of the work's configuration, and ``Spread`` where lengths are forced.

    A response cut or stretched to a recorded length earns nothing by itself.
    """
    functions: list[RewardFunction] = [Accuracy(weight=1.0)]
    if work.problems == "small world":
        functions.append(Format(weight=1.0))
    return functions if work.lengths is None else [*functions, Spread(weight=1.0)]


def make_grader(work: Work) -> Grader:
    """Return what decides about responses on both sides."""
    if work.problems == "sums":
        return Grader({"math": MathVerifier(last_expression=True)})
    return Grader()


def sources(work: Work, split: Literal["train", "held_out"] = "train") -> list[ProblemSource]:
    """Return the problems of ``configs/mini/r1_zero.yaml``, or of ``configs/real.yaml``."""
    if work.problems == "sums":
        return [Sums(split)]
    countdown, chain = (120, 60) if split == "train" else (48, 16)
    return [
        WorldCountdown(split=split, num_problems=countdown, min_attempts=30, max_attempts=40),
        WorldChain(split=split, num_problems=chain),
    ]


def prompt_options(work: Work) -> PromptOptions:
    """Return how a question becomes a prompt."""
    return SUMS if work.problems == "sums" else SMALL_WORLD


def prompt_texts(
    work: Work, tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]
) -> list[str]:
    """Return the prompts of problems."""
    options = prompt_options(work)
    return [
        render_prompt(tokenizer, options.template, options.wording, problem.question)
        for problem in problems
    ]


def data_module(work: Work, num_iterations: int) -> R1DataModule:
    """Return the data module that feeds r1lit."""
    return R1DataModule(
        train=sources(work),
        prompts=prompt_options(work),
        rollout=RolloutOptions(prompts_per_iteration=work.num_prompts, group_size=work.group_size),
        num_iterations=num_iterations,
        seed=work.seed,
    )


def prompt_loader(
    work: Work, tokenizer: PreTrainedTokenizerBase, num_iterations: int
) -> PromptLoader:
    """Return the same problems in the same order as ``data_module``, without a trainer."""
    problems = [problem for source in sources(work) for problem in source.problems()]
    return PromptLoader(
        problems,
        encode_prompts(tokenizer, prompt_texts(work, tokenizer, problems)),
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


class RecordedDocuments(DocumentSource):
    """Documents whose tokens, with BOS and EOS, number ``lengths``; the words are drawn."""

    def __init__(self, work: SupervisedWork, tokenizer: PreTrainedTokenizerBase) -> None:
        self.work = work
        self.words = _single_token_words(tokenizer)
        self.num_special = len(encode_documents(tokenizer, [Document(prompt="", response="")])[0])

    def documents(self) -> list[Document]:
        """Return the documents, in order."""
        generator = random.Random(self.work.seed)
        sizes = [length - self.num_special for length in self.work.lengths]
        texts = ["".join(generator.choices(self.words, k=size)) for size in sizes]
        return [Document(prompt="", response=text) for text in texts]


def encoded(work: SupervisedWork, tokenizer: PreTrainedTokenizerBase) -> list[EncodedDocument]:
    """Return the documents as r1lit encodes them.

    Raises:
        ValueError: if a document's tokens are not as many as recorded.
    """
    documents = encode_documents(tokenizer, RecordedDocuments(work, tokenizer).documents())
    lengths = tuple(map(len, documents))
    if lengths != work.lengths:
        raise ValueError(f"documents of {lengths[:4]} tokens and not {work.lengths[:4]}")
    return documents


def _single_token_words(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    candidates = [f" {letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    candidates += [f" {number}" for number in range(10)] + list("()+-*/=")
    ids = tokenizer(candidates, add_special_tokens=False)["input_ids"]
    return [word for word, tokens in zip(candidates, ids, strict=True) if len(tokens) == 1]
