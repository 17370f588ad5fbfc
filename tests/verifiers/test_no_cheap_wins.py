"""Ways to be paid without answering, tried on every verifier that reads an answer."""

import time
from collections.abc import Iterator

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.verifiers import DefaultVerifiers, Grader
from r1lit.verifiers.logic import knights_problem

CHOICES = ["Rome", "Oslo", "Paris", "Lima"]
PROBLEMS = {
    "math": Problem(
        uid="m", question="What is 70 + 2?", answer="72", source="t", verifier="math"
    ),
    "choice": Problem(
        uid="c", question="Capital of France? (A) Rome (B) Oslo (C) Paris (D) Lima", answer="C",
        source="t", verifier="choice", meta={"choices": CHOICES},
    ),
    "exact": Problem(
        uid="e", question="Paris is the capital of?", answer="France", source="t",
        verifier="exact",
    ),
    "countdown": Problem(
        uid="n", question="Using 3, 5, 7 make 56.", answer="", source="t", verifier="countdown",
        meta={"numbers": [3, 5, 7], "target": 56},
    ),
    "game24": Problem(
        uid="g", question="Using 4 9 10 13 make 24.", answer="", source="t", verifier="game24",
        meta={"numbers": [4, 9, 10, 13]},
    ),
    "logic": knights_problem(3, 5),
}  # fmt: skip
GOLD = {
    "math": "72",
    "choice": "C",
    "exact": "France",
    "countdown": "(3 + 5) * 7",
    "game24": "(10 - 4) * (13 - 9)",
    "logic": PROBLEMS["logic"].answer,
}
OTHER = {
    "math": "71",
    "choice": "B",
    "exact": "Spain",
    "countdown": "3 + 5 * 7",
    "game24": "10 - 4 + 13 - 9",
    "logic": PROBLEMS["logic"].answer.replace("knight", "knave"),
}
NAMES = sorted(PROBLEMS)


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    grader = Grader(DefaultVerifiers())
    yield grader
    grader.close()


def decide(grader: Grader, name: str, response: str) -> Verdict:
    return grader.verdicts([response], [PROBLEMS[name]])[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_wins(grader: Grader, name: str):
    right, wrong = GOLD[name], OTHER[name]
    for response in (
        f"<think> hm </think> <answer> {right} </answer>",
        f"hm </think> <answer>{right}</answer>",
        f"<answer>{wrong}</answer> No. <answer>{right}</answer>",
        f"<answer> {right}\u200b\u2060 </answer>",
        f"<answer> <answer> {right} </answer>",
        f"<think> <answer>{wrong}</answer> </think> <answer>{right}</answer>",
        f"{'so on and on. ' * 70_000}<answer>{right}</answer>",
    ):
        assert decide(grader, name, response).status == "right", response[-200:]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "form",
    [
        "",
        " ",
        "\u200b",
        "<answer></answer>",
        "<answer>\u200b</answer>",
        r"\boxed{}",
        "<think> <answer>{right}</answer>",
        "<think> <answer>{right}</answer> </think>",
        "<think> {right} </think>",
        r"<think> \boxed{{right}} </think> done",
        "<answer>{right}",
        "<answer>{right}<answer>",
        "{right}</answer>",
        r"\boxed{{right}",
        "<ANSWER>{right}</ANSWER> and more\nlines",
        "<answer>{right}</answer> <answer>{wrong}</answer>",
        "<answer>{wrong} <answer>{right}</answer> {wrong}</answer> <answer>{wrong}</answer>",
        "<answer>{right} or {wrong}</answer>",
        "<answer>{wrong} or {right}</answer>",
        "<answer>either {right} or {wrong}</answer>",
        "<answer>{right}, {wrong}</answer>",
        "<answer>{wrong}, {right}</answer>",
        "<answer>{right} {wrong}</answer>",
        "<answer>{right}/{wrong}</answer>",
        "<answer>{right}\n{wrong}</answer>",
        "<answer>{wrong}; {right}</answer>",
        "<answer>not {right}</answer>",
        "<answer>不是{right}</answer>",
        "<answer>maybe {right}</answer>",
        "<answer>{right}?</answer>",
        "<answer>I am unsure: {right}</answer>",
        "<answer>all of the above</answer>",
        "<answer>the gold answer</answer>",
        "<answer>problem.answer</answer>",
        "<answer>{question}</answer>",
        "<answer>{question} {right}</answer>",
        "<answer>1e9999</answer>",
        "<answer>-1e9999</answer>",
        "<answer>nan</answer>",
        "<answer>inf</answer>",
        "<answer>None</answer>",
        "<answer>True</answer>",
        "<answer>*</answer>",
        "<answer>.*</answer>",
        "<answer>__import__('os').getpid()</answer>",
        "<answer>{0}</answer>",
        "<answer>\x00</answer>",
        "<answer>\ud800</answer>",
    ],
)
def test_no_cheap_win(grader: Grader, name: str, form: str):
    response = (
        form.replace("{right}", GOLD[name])
        .replace("{wrong}", OTHER[name])
        .replace("{question}", PROBLEMS[name].question)
    )
    verdict = decide(grader, name, response)
    assert verdict.value == 0.0 and verdict.status in ("wrong", "unparsed"), (response, verdict)
    assert verdict.reason


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "answer",
    [
        "(" * 500_000,
        "9" * 1_000_000,
        "{" * 1_000_000,
        r"\frac{" * 200_000,
        "A" * 1_000_000,
        "((((" * 40 + "1" + "))))" * 40,
        "1" + "+1" * 300_000,
        "<answer>" * 100_000,
        "\u200b" * 1_000_000,
        "a or " * 200_000,
        ", " * 400_000,
        "$" * 1_000_000,
        "**" * 500_000,
        "Ann is a " * 100_000,
    ],
    ids=lambda text: text[:6].encode("unicode_escape").decode(),
)
def test_a_megabyte_costs_little_and_wins_nothing(grader: Grader, name: str, answer: str):
    for response in (f"<answer>{answer}</answer>", f"\\boxed{{{answer}}}", answer):
        start = time.process_time()
        verdict = decide(grader, name, response)
        assert verdict.value == 0.0
        assert time.process_time() - start < 3.0


@pytest.mark.parametrize("name", NAMES)
def test_look_alike_letters_and_digits(grader: Grader, name: str):
    swaps = {
        "2": "\u01a7",
        "C": "\u0421",
        "a": "\u0430",
        "3": "\u0417",
        "1": "\u0406",
        "k": "\u043a",
    }
    fakes = {GOLD[name].replace(old, new) for old, new in swaps.items()} - {GOLD[name]}
    assert fakes
    for fake in fakes:
        assert decide(grader, name, f"<answer>{fake}</answer>").value == 0.0, fake


def test_a_verdict_is_the_same_every_time(grader: Grader):
    texts = [f"<answer> {t} </answer>" for name in NAMES for t in (GOLD[name], OTHER[name], "x y")]
    problems = [PROBLEMS[name] for name in NAMES for _ in range(3)]
    first = [(v.status, v.canonical, v.reason) for v in grader.verdicts(texts, problems)]
    assert [status for status, _, _ in first[::3]] == ["right"] * len(NAMES)
    assert [(v.status, v.canonical, v.reason) for v in grader.verdicts(texts, problems)] == first


@pytest.mark.long
def test_nothing_is_started_until_it_is_used():
    fresh = DefaultVerifiers()
    others = ["functional_code", "ifeval_loose", "ifeval_strict", "none", "stdin_code"]
    others += ["function_call", "json_schema", "reasoning_gym"]  # test_structured has theirs
    others += ["repository"]  # test_repository
    assert sorted(fresh) == sorted([*NAMES, *others])
    grader = Grader(fresh)
    for name in NAMES:
        decide(grader, name, f"<answer>{GOLD[name]}</answer>")
    pools = [verifier.pool for verifier in fresh.values() if hasattr(verifier, "pool")]
    assert len(pools) == 6 and all(pool.pids == [] for pool in pools)
