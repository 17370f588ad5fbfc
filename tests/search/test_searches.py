"""Best-of-n, weighted best-of-n, beam search and DVTS on trees that can be enumerated."""

from __future__ import annotations

import math

import pytest
from stand_ins import LastWord
from tree_engine import (
    LEAVES,
    LINE,
    SAMPLING,
    TOKENIZER,
    TOKENS_A_LEAF,
    Table,
    TreeEngine,
    query,
    random_scores,
)

from r1lit.rollout import Sampling, ServerEngine
from r1lit.search import (
    DVTS,
    MCTS,
    BeamSearch,
    BestOfN,
    Noisy,
    Search,
    SearchResult,
    Step,
    ValueScorer,
    VerifierScorer,
    WeightedBestOfN,
)
from r1lit.verifiers import Grader


def run(search: Search, engine: TreeEngine, seed: int = 0, sampling=SAMPLING) -> SearchResult:
    return search.run([query()], engine, sampling, seed)[0]


def texts(result: SearchResult) -> list[str]:
    return [candidate.response.text for candidate in result.candidates]


def best_leaf(scores: dict[str, float], beginning: str = "") -> str:
    return max((leaf for leaf in LEAVES if leaf.startswith(beginning)), key=scores.__getitem__)


@pytest.mark.parametrize("seed", range(5))
def test_best_of_n_takes_the_largest_score(seed):
    scores = random_scores(seed)
    result = run(BestOfN(Table(scores), n=8), TreeEngine(in_turn=True))
    assert sorted(texts(result)) == sorted(LEAVES)
    assert result.chosen.response.text == best_leaf(scores)
    assert result.chosen.score == max(scores[leaf] for leaf in LEAVES)
    assert result.num_tokens == 8 * TOKENS_A_LEAF


def test_weighted_best_of_n_adds_the_scores_of_equal_answers():
    scores = {"p 1": 0.2, "q 1": 0.2, "r 1": 0.2, "p 2": 0.45, "q 2": 0.5, "p 3": 0.9}
    engine = TreeEngine({"Say": tuple(scores)}, in_turn=True)
    grader = Grader({"math": LastWord()})
    assert run(BestOfN(Table(scores), n=6), engine).chosen.response.text == "p 3"
    majority = run(WeightedBestOfN(n=6, grader=grader), engine)
    assert majority.chosen.response.text == "p 1"
    weighted = run(WeightedBestOfN(Table(scores), n=6, grader=grader), engine)
    assert weighted.chosen.response.text == "q 2"  # 0.95 for the answer 2, 0.9 for 3, 0.6 for 1
    assert weighted.chosen.score == 0.5
    with pytest.raises(ValueError, match=r"Table gave -1\.0, and weights are at least 0.*Sigmoid"):
        run(WeightedBestOfN(Table({}, other=-1.0), n=2, grader=grader), engine)


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_as_wide_as_the_tree_is_exhaustive(seed):
    scores = random_scores(seed)
    engine = TreeEngine(in_turn=True)
    result = run(BeamSearch(Table(scores), n=16, beam_width=2, step=LINE), engine)
    assert sorted(texts(result)) == sorted(LEAVES)
    assert result.chosen.response.text == best_leaf(scores)
    assert len(engine.calls) == 3
    assert result.num_tokens == engine.num_tokens == 16 * TOKENS_A_LEAF


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_of_one_follows_the_best_line(seed):
    scores = random_scores(seed)
    result = run(BeamSearch(Table(scores), n=8, beam_width=8, step=LINE), TreeEngine(in_turn=True))
    line = max("a\n", "b\n", key=scores.__getitem__)
    line = max(line + "a\n", line + "b\n", key=scores.__getitem__)
    assert sorted(texts(result)) == [line + "a", line + "b"]
    assert result.chosen.response.text == best_leaf(scores, line)


def test_steps_scores_are_aggregated():
    scores = {"a\n": 0.9, "a\na\n": 0.1, "a\na\na": 0.8, "b\n": 0.5, "b\na\n": 0.5, "b\na\na": 0.6}
    engine = TreeEngine({"Say": ("a\na\na", "b\na\na")}, in_turn=True)
    found = {}
    for aggregate in ("last", "min", "product"):
        search = BeamSearch(Table(scores), n=4, beam_width=2, step=LINE, aggregate=aggregate)
        found[aggregate] = run(search, engine).chosen
    assert {name: one.response.text[0] for name, one in found.items()} == {
        "last": "a", "min": "b", "product": "b",
    }  # fmt: skip
    assert found["min"].score == 0.5 and found["product"].score == pytest.approx(0.5 * 0.5 * 0.6)
    assert found["last"].response.scores == (0.9, 0.1, 0.8)


def test_the_last_round_draws_to_the_end():
    engine = TreeEngine(in_turn=True)
    search = BeamSearch(Table(random_scores(0)), n=8, beam_width=1, num_iterations=2, step=LINE)
    assert all(text in LEAVES for text in texts(run(search, engine)))
    assert len(engine.calls) == 2


def test_a_subtree_of_dvts_does_not_know_the_others():
    scores, engine = random_scores(3), TreeEngine()
    few, many = (run(DVTS(Table(scores), n=n, beam_width=2, step=LINE), engine) for n in (2, 12))
    assert texts(many)[: len(few.candidates)] == texts(few)
    assert len({text[0] for text in texts(many)}) == 2, "subtrees begin in different ways"
    assert many.num_tokens > few.num_tokens
    assert many.chosen.score == max(candidate.score for candidate in many.candidates)


def test_a_misleading_line_costs_dvts_one_subtree():
    """Beam search follows it alone; a subtree that never drew it finds the best leaf."""
    scores = {
        **dict.fromkeys(LEAVES, 0.0),
        "a\n": 0.9,
        "a\na\n": 0.9,
        "a\nb\n": 0.9,
        "b\nb\nb": 1.0,
    }
    table = Table(scores, other=0.5)
    beam = run(BeamSearch(table, n=24, beam_width=12, step=LINE), TreeEngine(in_turn=True))
    assert beam.chosen.response.text[0] == "a"
    assert run(DVTS(table, n=96, beam_width=2, step=LINE), TreeEngine()).chosen.score == 1.0


EACH = [
    BestOfN(Table(random_scores(1)), n=6),
    WeightedBestOfN(Table(random_scores(1)), n=6, grader=Grader({"math": LastWord()})),
    BeamSearch(Table(random_scores(1)), n=6, beam_width=2, step=LINE),
    DVTS(Table(random_scores(1)), n=6, beam_width=2, step=LINE),
    MCTS(Table(random_scores(1)), num_simulations=12, step=LINE),
    MCTS(Table(random_scores(1)), num_simulations=12, rollouts=2, step=Step(separator="\n")),
]


@pytest.mark.parametrize("search", EACH, ids=lambda search: type(search).__name__)
def test_no_budget_is_exceeded(search, monkeypatch):
    whole = run(search, TreeEngine())
    for budget in (3, 4, 5, 7, 11, 19, 30, whole.num_tokens - 1, whole.num_tokens):
        engine = TreeEngine()
        monkeypatch.setattr(search, "token_budget", budget)
        result = run(search, engine)
        assert result.num_tokens == engine.num_tokens <= budget
        assert result.chosen in result.candidates and result.chosen.response.token_ids
        assert result.chosen.response.finished or not any(
            candidate.response.finished for candidate in result.candidates
        )
    monkeypatch.setattr(search, "token_budget", 10 * whole.num_tokens)
    assert run(search, TreeEngine()) == whole


def test_a_budget_is_shared_and_what_is_left_over_is_used():
    """Two draws of at most 4 tokens; one ends after 2, the other gets the rest."""
    engine = TreeEngine({"Say": ("a", "b\nb\nb")}, in_turn=True)
    result = run(BestOfN(Table({}), n=2, token_budget=8), engine)
    assert sorted(texts(result)) == ["a", "b\nb\nb"]
    assert [c.response.finished for c in result.candidates] == [True, True]
    assert [request.sampling.max_tokens for call in engine.calls for request in call] == [4, 2]
    cut = run(BestOfN(Table({"b\nb\n": 9.0}), n=2, token_budget=6), engine)
    assert cut.chosen.response.text == "a", "one that has ended before one that was cut"


@pytest.mark.parametrize("search", EACH, ids=lambda search: type(search).__name__)
def test_the_same_seed_finds_the_same_whatever_else_is_searched(search):
    engine = TreeEngine({"Say": LEAVES, "Tell": LEAVES})
    queries = [query("Say", 1), query("Tell", 1), query("Say", 2)]
    together = search.run(queries, engine, SAMPLING, 5)
    prompts = [{r.prompt[: len(q.prompt)] for r in engine.calls[0]} for q in queries]
    assert all(q.prompt in found for q, found in zip(queries, prompts, strict=True))
    for one, expected in zip(queries, together, strict=True):
        assert search.run([one], TreeEngine({"Say": LEAVES, "Tell": LEAVES}), SAMPLING, 5) == [
            expected
        ]
    generated = {
        tuple(texts(search.run([query("Say", sample)], engine, SAMPLING, seed)[0]))
        for sample, seed in ((1, 5), (2, 5), (1, 6), (2, 6))
    }
    assert len(generated) > 1, "another sample or seed draws anew"


def test_siblings_are_one_request_so_that_their_prefix_is_read_once():
    engine = TreeEngine(in_turn=True)
    run(BeamSearch(Table(random_scores(0)), n=8, beam_width=4, step=LINE), engine)
    assert [len(call) for call in engine.calls] == [1, 2, 2]
    assert all(len(request.samples) == 4 for call in engine.calls[1:] for request in call)
    names = [name for call in engine.calls for request in call for name in request.samples]
    assert len(set(names)) == len(names) and max(names) < 2**62, "vLLM adds them to a seed"


def test_responses_end_by_a_stop_text_or_are_cut_at_the_limit():
    stopping = Sampling(max_tokens=64, stop="b")
    result = run(BeamSearch(Table({}), n=8, step=LINE), TreeEngine(in_turn=True), 0, stopping)
    assert set(texts(result)) == {"b", "a\nb", "a\na\nb", "a\na\na"}
    assert all(candidate.response.finished for candidate in result.candidates)
    cut = run(BestOfN(Table({}), n=2), TreeEngine(), 0, Sampling(max_tokens=3)).chosen.response
    assert cut.finish_reason == "length" and len(cut.token_ids) == 3
    assert cut.completion().finish_reason == "length" and cut.completion().num_tokens == 3


def test_what_a_verifier_finds_is_the_ceiling():
    """Pass@n: best-of-n by the verifier is right if any of its responses is."""
    engine = TreeEngine({"Say": ("p 1", "q 1", "p 2")}, in_turn=True)
    oracle = VerifierScorer(Grader({"math": LastWord()}))
    assert run(BestOfN(oracle, n=3), engine).chosen.response.text == "p 2"
    assert run(BestOfN(oracle, n=2), engine).chosen.score == 0.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BestOfN(Table({}), n=0), "n: 0 is not at least 1"),
        (lambda: BestOfN(Table({}), token_budget=0), "token_budget: 0 is not at least 1"),
        (lambda: BeamSearch(Table({}), n=6), "n: 6 is not a multiple of beam_width 4"),
        (lambda: MCTS(Table({}), max_nodes=1), "max_nodes: 1 is not at least 2"),
        (lambda: MCTS(Table({}), c_puct=-1.0), r"c_puct: -1\.0 is not at least 0"),
        (lambda: MCTS(Table({}), c_puct=math.inf), "c_puct: inf is not a finite number"),
        (lambda: Noisy(Table({}), std=math.inf), "std: inf is not a finite number"),
        (lambda: ValueScorer("no/such/folder"), "model: the directory 'no/such/folder' does not"),
        (lambda: Step(separator=""), r"step\.separator: it is empty"),
        (lambda: Step(separator=None), "step: neither separator nor max_tokens"),
        (lambda: Step(max_tokens=0), r"step\.max_tokens: 0 is not at least 1"),
        (
            lambda: DVTS(Table({}), n=8, token_budget=1).check(TreeEngine(), SAMPLING, TOKENIZER),
            "token_budget: 1 is less than a token for each of 2 subtrees",
        ),
        (
            lambda: BestOfN(Table({})).check(TreeEngine(), Sampling(temperature=0), TOKENIZER),
            r"sampling\.temperature: 0 generates the same response every time",
        ),
        (
            lambda: BestOfN(Table({})).check(ServerEngine(), SAMPLING, TOKENIZER),
            "engine: ServerEngine returns no token ids",
        ),
        (lambda: run(BestOfN(Table({}, other=float("nan"))), TreeEngine()), "Table returned nan"),
    ],
)
def test_bad_input_is_one_line(make, message):
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert "\n" not in str(error.value)
