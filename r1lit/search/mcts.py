"""Monte Carlo tree search with PUCT, as in AlphaGo Zero and AlphaZero (Silver et al. 2017)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from r1lit.errors import check_at_least
from r1lit.search.base import ScoredResponse, Search, SearchResult
from r1lit.search.partial_response import PartialResponse, distinct
from r1lit.search.scorers import Scorer
from r1lit.search.steps import SearchState, Step, StepGenerator
from r1lit.search.tree import Node, Tree, back_up


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
        if max_nodes is not None:
            check_at_least("max_nodes", max_nodes, 2)
        self.num_simulations = num_simulations
        self.num_children = num_children
        self.c_puct = c_puct
        self.max_nodes = max_nodes
        self.rollouts = rollouts
        self.choose_by = choose_by
        self.step = step

    def find(self, states: Sequence[SearchState], steps: StepGenerator) -> list[SearchResult]:
        """Return one result an state."""
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
