"""Searches: best-of-n, weighted best-of-n, beam search, DVTS and MCTS."""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from transformers import PreTrainedTokenizerBase

from r1lit.errors import check_at_least
from r1lit.rollout import RolloutEngine, Sampling
from r1lit.search.base import ScoredResponse, Search, SearchResult
from r1lit.search.generation import PartialResponse, SearchState, Step, StepGenerator, distinct
from r1lit.search.scorers import Scorer
from r1lit.text.scored_text import AGGREGATES, Aggregate
from r1lit.verifiers import DefaultVerifiers, Grader


class BestOfN(Search):
    """Generates n whole responses and takes the one with the largest score.

    Under a budget the responses share it equally; what those leave over that end early goes to
    those that have not ended.

    Args:
        scorer: scores whole responses.
        n: how many are generated.
        token_budget: the most tokens that one search may generate; null for any number.
    """

    def __init__(self, scorer: Scorer, n: int = 16, token_budget: int | None = None) -> None:
        super().__init__(scorer, token_budget)
        check_at_least("n", n, 1)
        self.n = n

    def find(self, states: Sequence[SearchState], steps: StepGenerator) -> list[SearchResult]:
        """Return one result per state."""
        found = steps.finish((state, [state.start()] * self.n) for state in states)
        responses = self.scored(found)
        return [
            self._result(state, [ScoredResponse(response=r, score=r.scores[-1]) for r in own])
            for state, own in zip(states, responses, strict=True)
        ]

    def _result(self, state: SearchState, candidates: list[ScoredResponse]) -> SearchResult:
        return SearchResult(
            chosen=self.choose(candidates),
            candidates=tuple(candidates),
            num_tokens=state.num_tokens,
        )


class EqualWeights(Scorer):
    """Scores every response 1."""

    def score(self, responses: Sequence[PartialResponse]) -> list[float]:
        """Return ones."""
        return [1.0] * len(responses)


class WeightedBestOfN(BestOfN):
    """Generates n responses; takes the answer of the largest sum of scores, in its best response.

    Equal answers are those of one canonical form (`Verdict.canonical`); a response without one
    casts no vote, and if none casts any, it is best-of-n. Sums need scores of at least 0: take
    `Sigmoid` where they are any numbers.

    Args:
        scorer: scores whole responses; if left out all weigh the same, which is majority vote.
        n: how many are generated.
        grader: reads the answers; the default of an evaluation if left out. It is the search's own.
        token_budget: the most tokens that one search may generate; null for any number.
    """

    def __init__(
        self,
        scorer: Scorer | None = None,
        n: int = 16,
        grader: Grader | None = None,
        token_budget: int | None = None,
    ) -> None:
        super().__init__(scorer or EqualWeights(), n, token_budget)
        self.grader = grader or Grader(DefaultVerifiers(last_expression=True))

    def choose(self, candidates: Sequence[ScoredResponse]) -> ScoredResponse:
        """Return the best response of the answer with the largest sum; the first among equals.

        Raises:
            ValueError: if a score is negative.
        """
        lowest = min(candidate.score for candidate in candidates)
        if lowest < 0:
            raise ValueError(
                f"scorer: {type(self.scorer).__name__} gave {lowest}, and weights are at least 0;"
                " r1lit.search.Sigmoid makes such of any scores"
            )
        responses = [candidate.response for candidate in candidates]
        verdicts = self.grader.verdicts(
            [r.text for r in responses], [r.query.problem for r in responses]
        )
        voters: dict[str, list[ScoredResponse]] = defaultdict(list)
        for candidate, verdict in zip(candidates, verdicts, strict=True):
            if verdict.canonical is not None:
                voters[verdict.canonical].append(candidate)
        if not voters:
            return super().choose(candidates)
        return super().choose(max(voters.values(), key=lambda own: sum(c.score for c in own)))

    def close(self) -> None:
        """Release the resources of scorer and grader."""
        super().close()
        self.grader.close()


class BeamSearch(Search):
    """Continues the n / beam_width most promising partial responses by a step, in n ways together.

    A round generates n steps (the first one n first steps), scores what they end on and keeps the
    best that have not ended; equal ones are one. Responses that end are put aside, and the best of
    those is chosen. It stops when n have ended, when none is left to continue, or after
    ``num_iterations`` rounds, of which the last generates to the end.

    The defaults of beam width, iterations and aggregate are search-and-learn's, which samples at
    temperature 0.8. Different from it: equal partial responses are merged by default, and no
    response is repeated to make n.

    Args:
        scorer: scores partial responses, and whole ones.
        n: steps a round.
        beam_width: into how many a kept response is continued; n is a multiple of it.
        num_iterations: the most rounds.
        step: where a step ends.
        aggregate: what a response's worth is of its steps' scores: the last, the smallest, or
            their product.
        token_budget: the most tokens that one search may generate; null for any number.
    """

    def __init__(
        self,
        scorer: Scorer,
        n: int = 16,
        beam_width: int = 4,
        num_iterations: int = 40,
        step: Step = Step(),
        aggregate: Aggregate = "last",
        token_budget: int | None = None,
    ) -> None:
        super().__init__(scorer, token_budget)
        check_at_least("beam_width", beam_width, 1)
        check_at_least("n", n, 1)
        check_at_least("num_iterations", num_iterations, 1)
        if n % beam_width:
            raise ValueError(f"n: {n} is not a multiple of beam_width {beam_width}")
        self.n = n
        self.beam_width = beam_width
        self.num_iterations = num_iterations
        self.step = step
        self.aggregate = aggregate

    def find(self, states: Sequence[SearchState], steps: StepGenerator) -> list[SearchResult]:
        """Return one result per state."""
        found = self.candidates(states, steps, self.n)
        return [
            SearchResult(
                chosen=self.choose(own), candidates=tuple(own), num_tokens=state.num_tokens
            )
            for state, own in zip(states, found, strict=True)
        ]

    def candidates(
        self, states: Sequence[SearchState], steps: StepGenerator, num_steps: int
    ) -> list[list[ScoredResponse]]:
        """Return the responses of searches of ``num_steps`` steps a round: ended ones, or kept."""
        ended: list[list[PartialResponse]] = [[] for _ in states]
        kept: list[list[PartialResponse]] = [[] for _ in states]
        starts = [[state.start()] * num_steps for state in states]
        for iteration in range(self.num_iterations):
            is_last = iteration + 1 == self.num_iterations
            asked = zip(states, starts, strict=True)
            generated = steps.finish(asked) if is_last else steps.generate(asked, self.step)
            children = self.scored([distinct(own) for own in generated])
            for index, own in enumerate(children):
                starts[index] = []
                if own:  # else its budget is spent, and the kept ones stay
                    ended[index] += [r for r in own if not r.goes_on]
                    kept[index] = self.keep(own)
                    if len(ended[index]) < num_steps:
                        starts[index] = spread(kept[index], num_steps)
            if not any(starts):
                break
        return [
            [ScoredResponse(response=r, score=self.worth(r)) for r in whole or cut]
            for whole, cut in zip(ended, kept, strict=True)
        ]

    def keep(self, responses: Sequence[PartialResponse]) -> list[PartialResponse]:
        """Return which responses of a round to continue, the best first."""
        going = [response for response in responses if response.goes_on]
        return sorted(going, key=self.worth, reverse=True)[: self.n // self.beam_width]

    def worth(self, response: PartialResponse) -> float:
        """Return a response's aggregated score."""
        return AGGREGATES[self.aggregate](response.scores)


def spread(responses: Sequence[PartialResponse], num: int) -> list[PartialResponse]:
    """Return ``num`` responses, equal ones side by side: each as often, the first ones once more.

    >>> spread("abc", 8)
    ['a', 'a', 'a', 'b', 'b', 'b', 'c', 'c']
    """
    each, more = divmod(num, max(1, len(responses)))
    return [r for i, r in enumerate(responses) for _ in range(each + (i < more))]


class DVTS(BeamSearch):
    """n / beam_width subtrees; each goes on from the best alone of its beam_width steps a round.

    So a scorer's mistake costs one subtree, where beam search may lose all others to it. A subtree
    ends when its best step ends a response. Its candidates are all responses that ended on the way
    (search-and-learn's are those of its last round). Each has an equal part of the budget, and
    generates the same however many others there are.

    Args:
        scorer: scores partial responses, and whole ones.
        n: steps a round, of all subtrees together.
        beam_width: steps a round of one subtree; n is a multiple of it.
        num_iterations: the most rounds; the last generates to the end.
        step: where a step ends.
        aggregate: what a response's worth is of its steps' scores: the last, the smallest, or
            their product.
        token_budget: the most tokens that one search may generate; null for any number.
    """

    def check(
        self, engine: RolloutEngine, sampling: Sampling, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        """Check that these can be searched with, and that each subtree has a budget.

        Raises:
            ValueError: if not.
        """
        super().check(engine, sampling, tokenizer)
        num = self.n // self.beam_width
        if self.token_budget is not None and self.token_budget < num:
            raise ValueError(
                f"token_budget: {self.token_budget} is less than a token for each of {num} subtrees"
            )

    def find(self, states: Sequence[SearchState], steps: StepGenerator) -> list[SearchResult]:
        """Return one result per state."""
        num = self.n // self.beam_width
        budget = None if self.token_budget is None else self.token_budget // num
        subtrees = [SearchState(a.query, budget, subtree) for a in states for subtree in range(num)]
        found = self.candidates(subtrees, steps, self.beam_width)
        results = []
        for first in range(0, len(subtrees), num):
            own = [c for candidates in found[first : first + num] for c in candidates]
            results.append(
                SearchResult(
                    chosen=self.choose(own),
                    candidates=tuple(own),
                    num_tokens=sum(s.num_tokens for s in subtrees[first : first + num]),
                )
            )
        return results

    def keep(self, responses: Sequence[PartialResponse]) -> list[PartialResponse]:
        """Return the best response of a subtree's round, if it has not ended."""
        best = max(responses, key=self.worth)
        return [best] if best.goes_on else []


@dataclass(eq=False)
class Node:
    """A partial response in the tree: its prior P, value v, visits N and total value W."""

    response: PartialResponse
    prior: float = 1.0
    value: float | None = None
    num_visits: int = 0
    total: float = 0.0
    children: list[Node] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Q = W / N, and 0 before the first visit."""
        return self.total / self.num_visits if self.num_visits else 0.0

    def select(self, c_puct: float) -> Node:
        """Return the child of the largest Q + U; among equals that of the largest prior.

        U(s, a) = c_puct P(s, a) sqrt(sum over b of N(s, b)) / (1 + N(s, a)).
        """
        root = math.sqrt(sum(child.num_visits for child in self.children))

        def rank(child: Node) -> tuple[float, float]:
            bonus = c_puct * child.prior * root / (1 + child.num_visits)
            return child.mean + bonus, child.prior

        return max(self.children, key=rank)

    def path(self, c_puct: float) -> list[Node]:
        """Return the nodes from this one to a leaf, each the selected child of the one before."""
        path = [self]
        while path[-1].children:
            path.append(path[-1].select(c_puct))
        return path

    def most_visited(self) -> Node:
        """Return where the most visited path ends; among equals the larger mean value leads on."""
        node = self
        while any(child.num_visits for child in node.children):
            node = max(node.children, key=lambda child: (child.num_visits, child.mean))
        return node


@dataclass(eq=False)
class Tree:
    """The tree of one search: how many nodes it has, and the whole responses found in it."""

    state: SearchState
    root: Node
    num_nodes: int = 1
    found: list[PartialResponse] = field(default_factory=list)


def back_up(path: list[Node]) -> None:
    """Add the last node's value, and a visit, to every node of a path from the root."""
    value = path[-1].value
    assert value is not None
    for node in path:
        node.num_visits += 1
        node.total += value


class MCTS(Search):
    """Grows a tree of steps where the policy and the scorer lead, one simulation after another.

    A simulation goes from the root to a leaf by PUCT, takes the scorer's number of the leaf as its
    value, samples ``num_children`` steps behind it (equal ones are one child, whose prior is its
    share of the samples, as in Sampled MuZero, 2104.06303), and adds the value to all nodes on the
    path. With ``rollouts`` the value is instead the mean score of so many whole responses behind
    the leaf, as a scorer of whole responses needs. All queries' simulations are made together.

    In the end the most visited path is followed and, where it has not ended, finished.

    AlphaZero's values lie between -1 and 1: scores of another size need `Sigmoid`, or another
    ``c_puct``. Different from it: no noise at the root, and no step is taken before the end.

    Args:
        scorer: scores partial responses, and whole ones; with ``rollouts`` nearly only whole ones.
        num_simulations: how many.
        num_children: steps generated behind a leaf.
        c_puct: weighs a child's prior and few visits against its value.
        max_nodes: the most nodes of a tree, its root included; null for any number.
        rollouts: whole responses behind a leaf that its value is the mean of; 0 scores the leaf.
        choose_by: "visits" takes the end of the most visited path, "score" the best-scoring
            response that ended anywhere in the search.
        step: where a step ends; ``{separator: null, max_tokens: 1}`` makes nodes of tokens.
        token_budget: the most tokens that one search may generate; null for any number.
    """

    def __init__(
        self,
        scorer: Scorer,
        num_simulations: int = 64,
        num_children: int = 4,
        c_puct: float = 1.25,
        max_nodes: int | None = None,
        rollouts: int = 0,
        choose_by: Literal["visits", "score"] = "visits",
        step: Step = Step(),
        token_budget: int | None = None,
    ) -> None:
        super().__init__(scorer, token_budget)
        check_at_least("num_simulations", num_simulations, 2)
        check_at_least("num_children", num_children, 1)
        check_at_least("c_puct", c_puct, 0)
        check_at_least("rollouts", rollouts, 0)
        check_at_least("max_nodes", max_nodes, 2)
        self.num_simulations = num_simulations
        self.num_children = num_children
        self.c_puct = c_puct
        self.max_nodes = max_nodes
        self.rollouts = rollouts
        self.choose_by = choose_by
        self.step = step

    def find(self, states: Sequence[SearchState], steps: StepGenerator) -> list[SearchResult]:
        """Return one result per state."""
        trees = self.grow(states, steps)
        ends = [tree.root.most_visited() for tree in trees]
        generated = steps.finish(
            (tree.state, [end.response] if end.response.goes_on else [])
            for tree, end in zip(trees, ends, strict=True)
        )
        completed = self.scored(generated)
        return [self._result(*each) for each in zip(trees, ends, completed, strict=True)]

    def _result(self, tree: Tree, end: Node, generated: list[PartialResponse]) -> SearchResult:
        """Return a tree's result; ``generated`` is its most visited ``end`` finished, if it was."""
        assert end.value is not None
        chosen = ScoredResponse(response=end.response, score=end.value)
        if generated:
            chosen = ScoredResponse(response=generated[0], score=generated[0].scores[-1])
        found = [ScoredResponse(response=r, score=r.scores[-1]) for r in tree.found]
        if chosen.response.token_ids:  # the root is no response
            found.append(chosen)
        candidates = tuple({one.response.token_ids: one for one in found}.values())
        if self.choose_by == "score" or not chosen.response.finished:
            chosen = self.choose(candidates)
        return SearchResult(chosen=chosen, candidates=candidates, num_tokens=tree.state.num_tokens)

    def grow(self, states: Sequence[SearchState], steps: StepGenerator) -> list[Tree]:
        """Return the trees after all simulations."""
        trees = [Tree(state, Node(state.start())) for state in states]
        for _ in range(self.num_simulations):
            paths = [tree.root.path(self.c_puct) for tree in trees]
            leaves = [(tree, path[-1]) for tree, path in zip(trees, paths, strict=True)]
            self._evaluate([(tree, leaf) for tree, leaf in leaves if leaf.value is None], steps)
            self._expand([(tree, leaf) for tree, leaf in leaves if leaf.response.goes_on], steps)
            for path in paths:
                back_up(path)
        return trees

    def _evaluate(self, leaves: Sequence[tuple[Tree, Node]], steps: StepGenerator) -> None:
        """Give leaves their values, by their own scores or by those of whole responses."""
        generated = steps.finish(
            (tree.state, [leaf.response] * (self.rollouts if leaf.response.goes_on else 0))
            for tree, leaf in leaves
        )
        scored = self.scored(
            [own or [leaf.response] for own, (_, leaf) in zip(generated, leaves, strict=True)]
        )
        for (tree, leaf), own, responses in zip(leaves, generated, scored, strict=True):
            leaf.value = fmean(response.scores[-1] for response in responses)
            tree.found += [response for response in responses if own or not response.goes_on]
            if not own:
                leaf.response = responses[0]

    def _expand(self, leaves: Sequence[tuple[Tree, Node]], steps: StepGenerator) -> None:
        """Generate the children of leaves, as many as there is room for."""
        most = self.max_nodes or sys.maxsize
        generated = steps.generate(
            (
                (tree.state, [leaf.response] * min(self.num_children, most - tree.num_nodes))
                for tree, leaf in leaves
            ),
            self.step,
        )
        for (tree, leaf), own in zip(leaves, generated, strict=True):
            times = Counter(response.token_ids for response in own)
            leaf.children = [
                Node(response, prior=times[response.token_ids] / len(own))
                for response in distinct(own)
            ]
            tree.num_nodes += len(leaf.children)
