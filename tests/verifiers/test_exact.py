import random
import string

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.verifiers import ExactVerifier
from r1lit.verifiers.exact import normalised


def verdict_of(response: str, answer: str = "Marie Curie", *aliases: str) -> Verdict:
    meta = {"aliases": list(aliases)} if aliases else {}
    problem = Problem(uid="s1", question="", answer=answer, source="t", meta=meta)
    return ExactVerifier().verify(response, problem)


@pytest.mark.parametrize(
    "response",
    [
        "<answer>Marie Curie</answer>",
        "<answer> marie  CURIE. </answer>",
        "<answer>The answer is Marie Curie.</answer>",
        "<answer>**Marie Curie**</answer>",
        "<answer>“Marie Curie”</answer>",
        "<answer>Ｍarie Curie</answer>",
        "<answer>Marie\u200b Curie</answer>",
        r"\boxed{Marie Curie}",
        r"<answer>\boxed{Marie Curie}</answer>",
        "The answer is Marie Curie.",
        "So the final answer is: **Marie Curie**.",
        "Answer: Marie Curie",
        "答案是 Marie Curie。",
        r"So it is \boxed{\text{Marie Curie}}.",
        r"\boxed{\mathrm{Marie}\text{ Curie}}",
        "<think> Pierre? </think> Marie Curie",
        "<answer>Pierre Curie</answer> <answer>Marie Curie</answer>",
    ],
)
def test_right(response: str):
    verdict = verdict_of(response)
    assert (verdict.status, verdict.canonical) == ("right", "marie curie")


@pytest.mark.parametrize(
    "response",
    [
        "<answer>Pierre Curie</answer>",
        "<answer>Marie Curie or Lise Meitner</answer>",
        "<answer>Marie Curie, Lise Meitner</answer>",
        "<answer>not Marie Curie</answer>",
        "<answer>maybe Marie Curie</answer>",
        "<answer>Marie</answer>",
        "<answer>Marie Curie Marie Curie</answer>",
        "<answer>Маrie Curie</answer>",  # Cyrillic М and а
        "The answer is Marie Curie or Lise Meitner.",
        "The answer is not Marie Curie.",
        "The answer cannot be Marie Curie.",
        r"\boxed{\text{Marie Curie or Lise Meitner}}",
        "Who discovered it? Marie Curie",
        "I think that it is Marie Curie",
    ],
)
def test_wrong(response: str):
    verdict = verdict_of(response)
    assert (verdict.status, verdict.value) == ("wrong", 0.0)
    assert verdict.canonical and "is not 'Marie Curie'" in verdict.reason


@pytest.mark.parametrize(
    "response",
    [
        "",
        "<answer> </answer>",
        "<answer>Marie Curie",
        "<think> Marie Curie </think>",
        "<think> <answer>Marie Curie</answer>",
        "One line.\nMarie Curie",
        "<answer>" + "Marie Curie " * 1000 + "</answer>",
    ],
)
def test_unparsed(response: str):
    verdict = verdict_of(response)
    assert (verdict.status, verdict.canonical) == ("unparsed", None)


def test_signs_that_carry_meaning_stay():
    for gold, other in [
        ("-5", "5"), ("1.5", "15"), ("C++", "C"), ("C#", "C"), ("50%", "50"), ("1/2", "12"),
        ("1939-1945", "19391945"), ("naïve", "native"), ("1,000", "1"),
    ]:  # fmt: skip
        assert verdict_of(f"<answer>{gold}</answer>", gold).status == "right"
        assert verdict_of(f"<answer>{other}</answer>", gold).status == "wrong", (gold, other)
    assert verdict_of("<answer>1000</answer>", "1,000").status == "right"
    assert verdict_of("<answer>USA</answer>", "U.S.A.").status == "right"
    assert verdict_of("<answer>Cafe\u0301</answer>", "Café").status == "right"
    assert verdict_of("<answer>STRASSE</answer>", "Straße").status == "right"


def test_aliases_vote_with_the_gold_answer():
    verdict = verdict_of("<answer>Big Apple</answer>", "New York", "NYC", "The Big Apple")
    assert (verdict.status, verdict.canonical) == ("right", "new york")
    assert verdict_of("<answer>York</answer>", "New York", "NYC").status == "wrong"


def test_answers_made_of_articles_and_marks_are_still_answers():
    assert verdict_of("<answer>The The</answer>", "The The").status == "right"
    assert verdict_of("<answer>The</answer>", "The The").status == "wrong"
    assert verdict_of("<answer>!</answer>", "!!!").status != "right"
    assert verdict_of("<answer>?</answer>", "Marie Curie").status != "right"


def test_bad_problems():
    assert verdict_of("<answer>x</answer>", "").status == "error"
    for aliases in ("NYC", ["NYC", 3]):
        problem = Problem(uid="s", question="", answer="x", source="", meta={"aliases": aliases})
        with pytest.raises(ValueError, match="aliases of problem 's'"):
            ExactVerifier().verify("", problem)


def test_gold_passes_and_a_changed_letter_fails():
    rng = random.Random(1)
    signs = string.ascii_letters + string.digits + "éßñ漢字-. "
    for _ in range(500):
        gold = "".join(rng.choice(signs) for _ in range(rng.randint(3, 25)))
        if not normalised(gold):
            continue
        assert verdict_of(f"<answer>{gold}</answer>", gold).status == "right", repr(gold)
        at = rng.choice([i for i, c in enumerate(gold + "q") if (c + "q")[0].isalnum()])
        other = gold[:at] + ("k" if gold[at : at + 1].casefold() != "k" else "w") + gold[at + 1 :]
        verdict = verdict_of(f"<answer>{other}</answer>", gold)
        assert verdict.status != "right" or normalised(other) == normalised(gold), (gold, other)
        once, twice = normalised(gold), normalised(normalised(gold))
        assert once == twice, gold
