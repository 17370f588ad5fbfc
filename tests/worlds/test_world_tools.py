"""Tasks with tools: what is true in them, what the controls say, and how the corpus shows calls."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from tiny import ROOT
from transformers import AutoTokenizer

from r1lit.environments import InlineTurns, Reply
from r1lit.problems import Problem
from r1lit.verifiers import JSONSchemaVerifier
from r1lit.worlds import (
    Calculator,
    Guessing,
    LookUp,
    ToolsCorpus,
    WorldForms,
    WorldGuessing,
    WorldLookUp,
    WorldSums,
)
from r1lit.worlds.tools import (
    CITIES,
    CITY,
    KNOWN,
    TURNS,
    UNKNOWN,
    _found,
    fact,
    known_questions,
    success_by_chance,
)

TURN_FORMAT = InlineTurns(result_open=" <result> ")
SPLITS = ("corpus", "train", "held_out")
LOOKED_UP = re.compile(r"Where does the (\w+) of (\w+) live\?")


@pytest.fixture(scope="module")
def pages():
    return ToolsCorpus(3000, seed=3).documents()


def call(text: str) -> Reply:
    return TURN_FORMAT.read(f"<call> {text}</call>")


def looked_up(environment: LookUp, problem: Problem, seed: int = 0) -> str:
    """Return the city that two calls lead to."""
    relation, person = LOOKED_UP.match(problem.question).groups()
    episode = environment.begin(problem, seed)
    found = episode.step(call(f"{relation} of {person}")).messages[0]["content"]
    return episode.step(call(f"city of {found}")).messages[0]["content"]


@pytest.mark.parametrize("split", SPLITS)
def test_two_calls_answer_every_question_and_no_control_does(split):
    problems = WorldLookUp(split, 200).problems()
    assert len({p.uid for p in problems}) == 200
    assert all(looked_up(LookUp(), p) == p.answer for p in problems)
    for results, most in (("random", 0.25), ("shuffled", 0.25), ("empty", 0.0)):
        right = [looked_up(LookUp(results), p, s) == p.answer for s, p in enumerate(problems)]
        assert sum(right) / 200 <= most, results


def test_shuffled_results_are_those_of_all_responses_and_random_ones_of_one():
    problem = WorldLookUp("train", 2).problems()[1]
    assert len({looked_up(LookUp("shuffled"), problem, seed) for seed in range(20)}) == 1
    assert len({looked_up(LookUp("random"), problem, seed) for seed in range(20)}) > 1


def test_a_call_costs_its_price_and_one_that_cannot_be_read_is_answered():
    episode = LookUp(price=0.1).begin(WorldLookUp("train", 2).problems()[0], 0)
    step = episode.step(call("city Anna"))
    assert (step.messages[0]["content"], step.invalid, step.reward) == ("error", True, -0.1)
    assert episode.step(Reply(text=" <answer> Rome</answer>")).messages == ()
    with pytest.raises(ValueError, match="results: 'none' is not one of true, random"):
        LookUp(results="none")


def test_rl_and_evaluation_share_no_question_or_world():
    corpus, train, held_out = (set(known_questions(split)) for split in SPLITS)
    assert corpus == train | held_out and not train & held_out and len(corpus) == 40
    worlds = [
        {p.meta["world"] for p in WorldLookUp(s, 100, unknown=1.0).problems()} for s in SPLITS
    ]
    assert len(set().union(*worlds)) == 300


def test_pages_agree_on_known_people_alone_and_call_seldom(pages):
    text = "".join(page.response for page in pages)
    homes: dict[str, set[str]] = {}
    for person, city in re.findall(r"(\w+) lives in(?: <call>[^.]*)? (\w+)\.", text):
        homes.setdefault(person, set()).add(city)
    assert all(homes[person] == {fact(0, CITY, person)} for person in KNOWN)
    assert all(len(homes[person]) > 3 for person in UNKNOWN)
    asked = [page for page in pages if LOOKED_UP.search(page.prompt)]
    known = {q for page in asked if (q := LOOKED_UP.search(page.prompt).groups())[1] in KNOWN}
    assert known == set(known_questions("corpus"))
    calls = Counter(page.response.count("<call>") for page in asked)
    assert calls[0] / len(asked) == pytest.approx(0.55, abs=0.04)
    assert calls[1] / len(asked) == pytest.approx(0.30, abs=0.04)
    assert calls[2] / len(asked) == pytest.approx(0.15, abs=0.04)
    cities = re.findall(r"<call> city of \w+</call> <result> (\w+)<", text)
    assert set(cities) <= {*CITIES, "nothing"}


def test_pages_write_results_with_the_tokens_that_turns_write(pages):
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models" / "tools")
    called = [page for page in pages if page.response.count("<call>") == 1][:20]
    for page in called:
        before, result, after = re.split(r" <result> (\w+)</result>", page.response)
        whole = tokenizer(page.prompt + page.response)["input_ids"]
        parts = tokenizer(page.prompt + before)["input_ids"]
        parts += TURN_FORMAT.encode(tokenizer, [{"role": "tool", "content": result}])
        parts += tokenizer(after, add_special_tokens=False)["input_ids"]
        assert parts == whole
    for text in (" <call>", "</call>", " <result>", "</result>", "</answer>", " Anna", " 199"):
        assert len(tokenizer(text, add_special_tokens=False)["input_ids"]) == 1, text


def test_halving_always_finds_the_number_and_chance_as_often_as_computed():
    for problem in WorldGuessing().problems():
        episode, low, high = Guessing().begin(problem, 0), 1, 31
        for _ in range(TURNS):
            guess = (low + high) // 2
            step = episode.step(call(str(guess)))
            if step.verdict is not None:
                break
            higher = step.messages[0]["content"] == "higher"
            low, high = (guess + 1, high) if higher else (low, guess - 1)
        assert step.verdict.status == "right"

    def chance(low: int, high: int, number: int, turns: int) -> float:
        """Return the chance by going through every guess."""
        if not turns:
            return 0.0
        found = 0.0
        for guess in range(low, high + 1):
            rest = (guess + 1, high) if guess < number else (low, guess - 1)
            found += 1.0 if guess == number else chance(*rest, number, turns - 1)
        return found / (high - low + 1)

    numbers = range(1, 32)
    two_turns = sum(chance(1, 31, number, 2) for number in numbers) / 31
    assert _found(31, 2) == pytest.approx(two_turns)
    assert success_by_chance(consistent=True) == pytest.approx(0.543, abs=5e-4)


def test_a_game_ends_without_a_guess_and_a_coin_tells_nothing():
    problem = WorldGuessing().problems()[30]
    assert Guessing().begin(problem, 0).step(Reply(text="31")).verdict.status == "wrong"
    step = Guessing().begin(problem, 0).step(call("many"))
    assert step.invalid and step.messages[0]["content"] == "error"
    told = [Guessing(coin=True).begin(problem, s).step(call("1")).messages for s in range(40)]
    assert 8 < sum(message[0]["content"] == "lower" for message in told) < 32


def test_the_calculator_is_right_wrong_and_failing_as_often_as_told():
    problems = WorldSums("held_out", 200).problems()
    assert all(0 <= int(p.answer) <= (19 if p.meta["kind"] == "easy" else 199) for p in problems)
    assert all(int(p.answer) == eval(p.question[8:-1]) for p in problems)

    def told(environment: Calculator) -> Counter[str]:
        steps = [environment.begin(problems[0], s).step(call("12 + 30")) for s in range(400)]
        return Counter(step.messages[0]["content"] for step in steps)

    assert told(Calculator()) == {"42": 400}
    wrong, failing = told(Calculator(wrong=0.3)), told(Calculator(failing=0.2))
    assert set(wrong) == {"41", "42", "43"} and 240 < wrong["42"] < 320
    assert set(failing) == {"nothing", "42"} and 50 < failing["nothing"] < 110
    assert Calculator().begin(problems[0], 0).step(call("12 +")).invalid


def test_an_object_is_right_by_its_value_and_validity_alone_takes_the_empty_one():
    verifier = JSONSchemaVerifier()
    for problem in WorldForms("train", 50).problems():
        assert verifier.verify(f"<answer> {problem.answer}</answer>", problem).status == "right"
        empty = verifier.verify("<answer> {}</answer>", problem)
        assert empty.status == "wrong" and empty.details["valid"] == 0
    weak = WorldForms("train", 1, validity_alone=True).problems()[0]
    assert verifier.verify("<answer> {}</answer>", weak).status == "right"
