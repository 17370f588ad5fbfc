import random

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.problems import LETTERS
from r1lit.verifiers import ChoiceVerifier, Grader, check_gold_answers
from r1lit.verifiers.choice import read_choice, right_choice

CITIES = ("Rome", "Oslo", "Paris", "A city in Peru")


def verdict_of(response: str, answer: str = "C", choices: tuple[str, ...] = CITIES) -> Verdict:
    problem = Problem(
        uid="q1", question="", answer=answer, source="t", meta={"choices": list(choices)}
    )
    return ChoiceVerifier().verify(response, problem)


@pytest.mark.parametrize(
    "response",
    [
        "<answer>C</answer>",
        "<think> A or B? </think> <answer> (C) </answer>",
        "<answer>C.</answer>",
        "<answer>[C]</answer>",
        "<answer>c</answer>",
        "<answer>**C**</answer>",
        "<answer>Option C</answer>",
        "<answer>The correct answer is (C).</answer>",
        "<answer>C) Paris</answer>",
        "<answer>C. Paris</answer>",
        "<answer>(C) Paris, because Rome is in Italy.</answer>",
        "<answer>Paris</answer>",
        "<answer> the paris. </answer>",
        "<answer>C is correct</answer>",
        "<answer>Ｃ</answer>",
        "<answer>C\u200b</answer>",
        "<answer>答案是C。</answer>",
        r"\boxed{C}",
        r"\boxed{\text{C}}",
        r"\boxed{\text{(C) Paris}}",
        r"So it is \boxed{C}.",
        r"<answer> \boxed{C} </answer>",
        r"\boxed{A} no: \boxed{C}",
        "<answer>A</answer> wait <answer>C</answer>",
        "The answer is (C).",
        "The answer is C",
        "Not A. The answer is: C. Paris.",
        "**Answer: C**",
        "Answer: C\n",
        "I thought that the answer is A at first, but the answer is C.",
        "The correct option is **C**.",
        "答案：C",
        "故选C。",
        "C",
        "(C) Paris",
    ],
)
def test_right(response: str):
    verdict = verdict_of(response)
    assert (verdict.status, verdict.value, verdict.canonical) == ("right", 1.0, "C")


@pytest.mark.parametrize(
    "response",
    [
        "",
        " ",
        "<answer></answer>",
        "<answer>A or C</answer>",
        "<answer>C or A</answer>",
        "<answer>A, B, C, D</answer>",
        "<answer>ABCD</answer>",
        "<answer>A B C D</answer>",
        "<answer>(A)(B)(C)(D)</answer>",
        "<answer>C and D</answer>",
        "<answer>C/D</answer>",
        "<answer>C?</answer>",
        "<answer>not C</answer>",
        "<answer>C is wrong</answer>",
        "<answer>maybe C</answer>",
        "<answer>C, or maybe B</answer>",
        "<answer>C. or B.</answer>",
        "<answer>(C) or (B)</answer>",
        "<answer>C) Rome</answer>",
        "<answer>A. Paris</answer>",
        "<answer>Rome or Paris</answer>",
        "<answer>Rome Oslo Paris A city in Peru</answer>",
        "<answer>anything but A, B and D</answer>",
        "<answer>E</answer>",
        "<answer>\u0421</answer>",  # a Cyrillic letter
        "<answer>2</answer>",
        r"\boxed{A, C}",
        r"\boxed{}",
        r"\boxed{C",
        "The answer is A or C.",
        "The answer is C or A.",
        "The answer is (C), or perhaps (A).",
        "The answer is not C.",
        "The answer is one of A, B, C and D.",
        "Is the answer C?",
        "答案是A或C",
        "A Parisian would know.",
        "Consider A. Consider B. Consider C.\nHard to say.",
        "<think> The answer is C. </think>",
        "<think> The answer is C. <answer>C</answer>",
        "<answer>C",
    ],
)
def test_commits_to_nothing(response: str):
    verdict = verdict_of(response)
    assert (verdict.status, verdict.value, verdict.canonical) == ("unparsed", 0.0, None)
    assert verdict.reason


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("<answer>A</answer>", "A"),
        ("The answer is C. No, the answer is B.", "B"),
        ("<answer>C</answer> but on reflection <answer>D</answer>", "D"),
        (r"<answer>C</answer> \boxed{B}", "B"),
        ("<answer>A city in Peru</answer>", "D"),
        ("<answer>Rome</answer>", "A"),
    ],
)
def test_wrong_and_votes(response: str, letter: str):
    verdict = verdict_of(response)
    assert (verdict.status, verdict.canonical) == ("wrong", letter)
    assert verdict.reason == f"chose {letter}, not C"


def test_letters_and_texts_that_look_alike():
    # the letter A is no article, a letter that is also a text is a letter
    assert read_choice("A. Paris", ["London", "x", "Paris"]) is None
    assert read_choice("a dog", ["a cat", "a dog"]) == 1
    assert read_choice("B", ["B", "A"]) == 1
    assert read_choice("I", ["I", "II", "III", "I only"]) == 0
    assert read_choice("I only", ["I only", "II only"]) == 0
    assert read_choice("0", ["0", "1", "2", "3"]) == 0
    # equal texts: only a letter tells them apart
    assert read_choice("same", ["same", "same", "other"]) is None
    assert read_choice("B. same", ["same", "same", "other"]) == 1
    # texts that differ in one sign
    assert read_choice("-5", ["5", "-5"]) == 1
    assert read_choice("C++", ["C", "C++", "C#"]) == 1
    assert read_choice("True, False", ["True, True", "True, False"]) == 1


def gold(answer: str, choices: list[str], **meta: str) -> int:
    meta_all = {"choices": choices, **meta}
    return right_choice(Problem(uid="q", question="", answer=answer, source="", meta=meta_all))


def test_the_three_forms_of_a_gold_answer():
    assert gold("B", list(CITIES)) == gold("(b)", list(CITIES)) == gold("1", list(CITIES)) == 1
    assert gold("Oslo", list(CITIES)) == 1
    assert gold("1", ["0", "1"]) == 1
    assert gold("1", ["1", "2"], answer_form="index") == 1
    assert gold("1", ["1", "2"], answer_form="text") == 0
    with pytest.raises(ValueError, match=r"'1' of problem 'q' names 2 of its 2 choices; a letter"):
        gold("1", ["1", "2"])
    for answer in ("E", "4", "Madrid", ""):
        with pytest.raises(ValueError, match=r"names 0 of its 4 choices"):
            gold(answer, list(CITIES))
    with pytest.raises(ValueError, match="answer_form of problem 'q' is 'number'"):
        gold("B", list(CITIES), answer_form="number")


@pytest.mark.parametrize("choices", [None, [], ["one"], "ABCD", [1, 2], ["x"] * 11])
def test_choices_are_checked(choices: object):
    problem = Problem(uid="q", question="", answer="A", source="", meta={"choices": choices})
    with pytest.raises(ValueError, match="meta: choices of problem 'q'"):
        ChoiceVerifier().verify("A", problem)


def test_golds_of_every_form_pass_the_check_of_data():
    problems = [
        Problem(
            uid="q", question="", answer=a, source=a, verifier="choice", meta={"choices": CITIES}
        )
        for a in ("C", "2", "Paris")
    ]
    check_gold_answers(Grader(), problems, "data.train")


def test_gold_passes_and_every_other_letter_fails():
    rng = random.Random(0)
    words = ["4", "5", "Rome", "a dog", "B", "None of the above", "x + 1", "A and B", "I only"]
    for _ in range(300):
        choices = tuple(rng.sample(words, rng.randint(2, len(words))))
        right = rng.randrange(len(choices))
        for place in range(len(choices)):
            shown = rng.choice(["{0}", "({0})", "{0}. {1}", "({0}) {1}", "Option {0}"])
            text = shown.format(LETTERS[place], choices[place])
            verdict = verdict_of(f"<answer>{text}</answer>", LETTERS[right], choices)
            assert verdict.canonical == LETTERS[place], (text, choices)
            assert verdict.value == float(place == right)
