"""An engine whose tree is known, so that everything a search finds can be counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from tiny import ROOT
from transformers import AutoTokenizer

from r1lit.batches import Problem
from r1lit.rollout import (
    Capabilities,
    Completion,
    ModelSpec,
    Request,
    RolloutEngine,
    Sampling,
)
from r1lit.search import PartialResponse, Query, Scorer, Step
from r1lit.seeding import generator

TOKENIZER = AutoTokenizer.from_pretrained(ROOT / "models" / "mini")
SAMPLING = Sampling(temperature=0.8, max_tokens=64)
LINE = Step(separator="\n")
# the first line alternates from one to the next, and so do later ones of one beginning
LEAVES = tuple(f"{x}\n{y}\n{z}" for z in "ab" for y in "ab" for x in "ab")
TOKENS_A_LEAF = 6  # three letters, two ends of lines, one end of the response


def query(text: str = "Say", sample: int = 0) -> Query:
    problem = Problem(uid=text, question=text, answer="2", source="tree")
    return Query(problem=problem, prompt=tuple(TOKENIZER(text)["input_ids"]), sample=sample)


class TreeEngine(RolloutEngine):
    """Says one of a prompt's leaves, each as likely; the tree is that of their common beginnings.

    ``in_turn``: the samples of a request go through the leaves one after another, instead of by
    (seed, iteration, sample).
    """

    capabilities = Capabilities(needs_policy=False)

    def __init__(
        self, leaves: Mapping[str, Sequence[str]] | None = None, in_turn: bool = False
    ) -> None:
        self.in_turn = in_turn
        self.calls: list[list[Request]] = []
        self.num_tokens = 0
        self.bind(ModelSpec(name="tree", tokenizer=TOKENIZER))
        self.leaves_of = {
            query(prompt).prompt: [
                (*TOKENIZER(leaf, add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id)
                for leaf in own
            ]
            for prompt, own in (leaves or {"Say": LEAVES}).items()
        }

    def generate(self, requests, on_finished=None):
        self.calls.append(list(requests))
        completions = [c for request in requests for c in self.completions(request)]
        self.num_tokens += sum(completion.num_tokens for completion in completions)
        return completions

    def completions(self, request: Request) -> list[Completion]:
        for prompt, leaves in self.leaves_of.items():
            if request.prompt[: len(prompt)] == prompt:
                prefix = request.prompt[len(prompt) :]
                rests = [leaf[len(prefix) :] for leaf in leaves if leaf[: len(prefix)] == prefix]
        found = []
        for place, sample in enumerate(request.samples):
            named = generator(request.seed, "leaf", request.iteration, sample)
            index = place % len(rests) if self.in_turn else int(named.integers(len(rests)))
            found.append(begin(rests[index], request.sampling))
        return found


def begin(rest: Sequence[int], sampling: Sampling) -> Completion:
    """The beginning of ``rest`` up to its end, a stop text or the limit."""
    for end in range(1, len(rest) + 1):
        text = TOKENIZER.decode(rest[:end])
        stopped = end == len(rest) or any(stop in text for stop in sampling.stop)
        if stopped or end == sampling.max_tokens:
            break
    return Completion(
        token_ids=torch.tensor(rest[:end]), finish_reason="stop" if stopped else "length"
    )


class Table(Scorer):
    """Scores texts as a table says; others get ``other``."""

    def __init__(self, scores: Mapping[str, float], other: float = 0.0) -> None:
        self.scores = dict(scores)
        self.other = other
        self.seen: list[str] = []

    def score(self, responses: Sequence[PartialResponse]) -> list[float]:
        self.seen += [response.text for response in responses]
        return [self.scores.get(response.text, self.other) for response in responses]


def random_scores(seed: int) -> dict[str, float]:
    """A score from 0 to 1 for every node of the tree of ``LEAVES``."""
    numbers = generator(seed, "scores")
    nodes = dict.fromkeys(leaf[:end] for leaf in LEAVES for end in (2, 4, 5))
    return {node: float(numbers.random()) for node in nodes}


def exact_values(scores: Mapping[str, float]) -> dict[str, float]:
    """The leaves' scores, and at each inner node their mean below it."""
    below = {
        leaf[:end]: [scores[other] for other in LEAVES if other.startswith(leaf[:end])]
        for leaf in LEAVES
        for end in (0, 2, 4, 5)
    }
    return {node: sum(own) / len(own) for node, own in below.items()}
