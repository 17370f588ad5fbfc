"""Labels of steps on a tree whose every completion is known."""

from __future__ import annotations

import pytest
import torch
from stand_ins import LastWord
from tiny import ROOT
from transformers import AutoTokenizer

from r1lit.batches import Problem
from r1lit.curation.step_labels import Solution, cut_solution, labelled, monte_carlo_labels
from r1lit.rollout import (
    Capabilities,
    Completion,
    ModelSpec,
    RolloutEngine,
    Sampling,
    ServerEngine,
)
from r1lit.verifiers import Grader

TOKENIZER = AutoTokenizer.from_pretrained(ROOT / "models" / "mini")
# from "a\n" half of the leaves end in the right answer, 2; from "b\n" a quarter
LEAVES = ("a\nx\n2", "a\ny\n3", "b\nx\n2", "b\nx\n3", "b\ny\n4", "b\ny\n5")
PROBLEM = Problem(uid="p", question="Say", answer="2", source="tree")
PROMPT = tuple(TOKENIZER("Say")["input_ids"])


def ids(text: str) -> tuple[int, ...]:
    return (*TOKENIZER(text, add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id)


class Tree(RolloutEngine):
    """Completes a prefix with the leaves below it, one after another by the sample's number."""

    capabilities = Capabilities(needs_policy=False)

    def __init__(self):
        self.bind(ModelSpec(name="tree", tokenizer=TOKENIZER))
        self.requests = []

    def generate(self, requests, on_finished=None):
        self.requests += requests
        found = []
        for request in requests:
            prefix = request.prompt[len(PROMPT) :]
            rests = [
                ids(leaf)[len(prefix) :] for leaf in LEAVES if ids(leaf)[: len(prefix)] == prefix
            ]
            for place in range(len(request.samples)):
                rest = torch.tensor(rests[place % len(rests)])
                found.append(Completion(token_ids=rest, finish_reason="stop"))
        return found


def solution(text: str) -> Solution:
    return Solution(
        problem=PROBLEM, prompt=PROMPT, token_ids=ids(text), is_right=text.endswith("2")
    )


def test_counts_on_a_tree_are_its_own():
    engine = Tree()
    solutions = [solution("a\nx\n2"), solution("b\nx\n3"), solution("b\ny\n4")]
    found = monte_carlo_labels(
        engine, solutions, separators=["\n"], sampling=Sampling(), num_completions=4,
        grader=Grader({"math": LastWord()}),
    )  # fmt: skip
    # "b\nx\n" is completed by 2 and 3 in turn, "b\ny\n" by 4 and 5
    assert found == [[2, 4, 4], [1, 2, 0], [1, 0, 0]]
    names = [name for request in engine.requests for name in request.samples]
    assert len(names) == len(set(names)) == 6 * 4  # the last steps are what they are
    cut = cut_solution(engine, solutions[1], ["\n"])
    row = labelled(solutions[1], cut.steps, found[1], 4)
    assert row["steps"] == ["b\n", "x\n", "3"] and row["label"] == [0.25, 0.5, 0.0]


def test_an_engine_without_tokens_is_refused():
    engine = ServerEngine(model="m")
    with pytest.raises(ValueError, match="returns no token ids, by which steps are continued"):
        monte_carlo_labels(
            engine, [], separators=["\n"], sampling=Sampling(), grader=Grader(), num_completions=1
        )
