"""Monte Carlo tree search: PUCT and backup by hand, convergence and budgets on a known tree."""

from __future__ import annotations

import pytest
from tree_engine import (
    LEAVES,
    LINE,
    SAMPLING,
    Table,
    TreeEngine,
    exact_values,
    query,
    random_scores,
)

from r1lit.search import MCTS, Step
from r1lit.search.algorithms import Node, Tree
from r1lit.search.generation import SearchState, StepGenerator
from r1lit.seeding import permutation


def grow(search: MCTS, engine: TreeEngine) -> Tree:
    steps = StepGenerator(engine=engine, sampling=SAMPLING, seed=0)
    return search.grow([SearchState(query(), search.token_budget)], steps)[0]


def nodes(tree: Tree) -> dict[str, Node]:
    """All nodes by their texts."""
    found, left = {}, [tree.root]
    while left:
        node = left.pop()
        found[node.response.text] = node
        left += node.children
    return found


def test_simulations_by_hand():
    """Priors 0.4 of b, which is drawn first, and 0.6 of a; c = 1.

    1: the root, v = 0.5.
    2: nothing has visits, so that U = 0 everywhere: a, by its prior; v = 0.12.
    3: a: 0.12 + 0.6 * 1/2 = 0.42, b: 0 + 0.4 * 1/1 = 0.4: a, then its likelier child, v = 0.
    4: a: 0.06 + 0.6 * sqrt 2 / 3 = 0.343, b: 0.4 * sqrt 2 = 0.566: b, v = 0.6.
    5: a: 0.06 + 0.6 * sqrt 3 / 3 = 0.406, b: 0.6 + 0.4 * sqrt 3 / 2 = 0.946: b, then its likelier
       child, v = 0.9.
    """
    leaves = ("b\nc", "a\nc", "a\nd", "a\nc", "b\nd")
    table = Table({"": 0.5, "a\n": 0.12, "b\n": 0.6, "b\nc": 0.9})
    expected = {
        2: {"": (2, 0.62), "a\n": (1, 0.12), "b\n": (0, 0.0)},
        3: {"": (3, 0.62), "a\n": (2, 0.12), "b\n": (0, 0.0), "a\nc": (1, 0.0)},
        4: {"": (4, 1.22), "a\n": (2, 0.12), "b\n": (1, 0.6)},
        5: {"": (5, 2.12), "a\n": (2, 0.12), "b\n": (2, 1.5), "b\nc": (1, 0.9), "b\nd": (0, 0.0)},
    }
    for num_simulations, numbers in expected.items():
        engine = TreeEngine({"Say": leaves}, in_turn=True)
        search = MCTS(table, num_simulations, num_children=5, c_puct=1.0, step=LINE)
        found = nodes(grow(search, engine))
        for text, (num_visits, total) in numbers.items():
            assert found[text].num_visits == num_visits, (num_simulations, text)
            assert found[text].total == pytest.approx(total), (num_simulations, text)
        priors = {text: found[text].prior for text in ("a\n", "b\n", "a\nc", "a\nd")}
        assert priors == {"a\n": 0.6, "b\n": 0.4, "a\nc": 0.6, "a\nd": 0.4}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "step", [LINE, Step(separator=None, max_tokens=1)], ids=["lines", "tokens"]
)
def test_visits_converge_to_the_best_leaf(seed, step):
    """With exact values, of leaves worth 0, 1/7 … 1 in any order."""
    ranks = permutation(len(LEAVES), seed, "leaves")
    scores = exact_values({leaf: rank / 7 for leaf, rank in zip(LEAVES, ranks, strict=True)})
    if step.separator is None:  # half a line is worth what the line is
        scores |= {text[:-1]: value for text, value in scores.items() if text.endswith("\n")}
    best = max(LEAVES, key=scores.__getitem__)
    search = MCTS(Table(scores), num_simulations=2000, step=step)
    engine = TreeEngine(in_turn=True)
    result = search.run([query()], engine, SAMPLING, 0)[0]
    assert result.chosen.response.text == best
    found = nodes(grow(search, engine))
    on_path = [found[best[:end]].num_visits for end in (2, 4, 5)]
    others = [found[leaf].num_visits for leaf in LEAVES if leaf != best and leaf in found]
    assert on_path == sorted(on_path, reverse=True) and on_path[-1] > max(others)
    assert on_path[0] > 1000, "more than half of all go to its first line"


@pytest.mark.parametrize("seed", range(4))
def test_rollouts_stand_in_for_values(seed):
    """A scorer that knows whole responses alone leads as well, by means over rollouts."""
    scores = random_scores(seed)
    whole = {leaf: scores[leaf] for leaf in LEAVES}
    best = max(LEAVES, key=whole.__getitem__)
    table = Table(whole, other=-100.0)
    search = MCTS(table, num_simulations=300, num_children=12, rollouts=2, step=LINE)
    assert search.run([query()], TreeEngine(), SAMPLING, 0)[0].chosen.response.text == best
    assert set(table.seen) <= set(LEAVES), "no partial response is scored"


def test_each_response_is_scored_once_however_often_it_is_visited():
    table = Table(exact_values(random_scores(0)))
    grow(MCTS(table, num_simulations=200, step=LINE), TreeEngine(in_turn=True))
    assert len(table.seen) == len(set(table.seen)) <= 15


def test_a_tree_has_no_more_nodes_than_it_may():
    for most in (2, 3, 4, 7, 100):
        search = MCTS(Table(random_scores(0)), 60, max_nodes=most, step=LINE)
        tree = grow(search, TreeEngine(in_turn=True))
        assert len(nodes(tree)) == tree.num_nodes <= most
        assert search.run([query()], TreeEngine(), SAMPLING, 0)[0].chosen.response.text in LEAVES
    assert tree.num_nodes == 15, "the whole tree fits into 100"


def test_the_best_score_anywhere_may_be_chosen_instead_of_the_most_visits():
    """The root's rollouts meet the best leaf once, behind a line that is bad on the whole."""
    scores = {leaf: 0.8 if leaf[0] == "a" else float(leaf == "b\nb\nb") for leaf in LEAVES}
    chosen = {}
    for by in ("visits", "score"):
        search = MCTS(Table(scores), 10, c_puct=0.5, rollouts=8, choose_by=by, step=LINE)
        result = search.run([query()], TreeEngine(in_turn=True), SAMPLING, 0)[0]
        chosen[by] = result.chosen.response.text
    assert chosen["visits"].startswith("a") and chosen["score"] == "b\nb\nb"
