"""Graders of letters and short answers: gold right, near miss wrong, refusal wrong."""

from __future__ import annotations

import time

import pytest

from r1lit.evaluation.suites import load_suite
from r1lit.evaluation.suites.choice import AnswerIs, MMLURedux
from r1lit.evaluation.suites.scores import subject_mean
from r1lit.evaluation.suites.short_answer import drop_f1
from r1lit.problems import Problem

FOUR = {"choices": ["Rome", "Oslo", "Paris", "Bonn"]}
REFUSAL = "I am sorry, I cannot help with that."

VERDICTS: dict[str, tuple[dict, str, list[tuple[str, str]]]] = {
    "mmlu": (
        FOUR,
        "C",
        [
            ("<think>A or B?</think>So it is Paris.\nAnswer: C", "right"),
            ("<think>Answer: C</think>Answer: B", "wrong"),
            ("**Answer:** $\\boxed{C}$", "right"),
            ("答案：Ｃ", "right"),
            ("Resposta: C", "right"),
            ("Answer: c", "wrong"),  # as written, as in simple-evals
            ("Answer: B\n\nAnswer: C\n", "right"),  # the last line
            ("Answer: C\nI am sure.", "unparsed"),
            ("<answer> Answer: C </answer>", "right"),
            ("Paris", "unparsed"),
            ("<think>Answer: C", "unparsed"),
            (REFUSAL, "unparsed"),
        ],
    ),
    "gpqa_diamond": (
        FOUR,
        "C",
        [
            ("ANSWER: $C$", "right"),
            ("ANSWER: c", "wrong"),  # as in simple-evals
            ("Answer: C\nAnswer: B", "right"),  # the first one counts
            ("Answer: B\nAnswer: C", "wrong"),
            ("**Answer:** C", "unparsed"),
            (REFUSAL, "unparsed"),
        ],
    ),
    "mmlu_pro": (
        {"choices": [str(i) for i in range(10)]},
        "H",
        [
            ("so the answer is (H).", "right"),
            ("the answer is H", "right"),
            ("the answer is (G), no, the answer is (H)", "wrong"),
            ("Answer: H", "right"),
            ("It is G or H", "right"),
            ("It is H or G", "wrong"),
            ("It cannot be said.", "unparsed"),
        ],
    ),
    "mmlu_redux": (
        FOUR,
        "C",
        [
            ('```json\n{"reasoning": "a\nb {x}", "answer": "C"}\n```', "right"),
            ('{"reasoning": "so", "answer": "(C) Paris"}', "right"),
            ('{"answer": "B"}', "wrong"),
            ('{"reasoning": "not "quoted" well", "answer": "C"}', "right"),
            ("the answer is C", "unparsed"),
            ('{"answer": ""}', "unparsed"),
            (REFUSAL, "unparsed"),
        ],
    ),
    "ceval": (
        FOUR,
        "C",
        [
            ("C", "right"),
            ("C。因为", "right"),
            ("所以答案是 C", "right"),
            ("答案：B", "wrong"),
            ("C不对。\n答案是D", "wrong"),  # the last line
            ("答案是C\n就是它。", "unparsed"),
            ("我不知道", "unparsed"),
        ],
    ),
    "cluewsc": (
        {},
        "张浃",
        [("张浃", "right"), ("韦大哥不对。\n\n“张浃”。", "right"), ("张浃\n不，是韦大哥", "wrong"),
         ('上面的句子中的"他"指的是张浃。', "right"), ("张", "wrong"), ("<think>张浃", "unparsed")],
    ),
    "drop": (
        {},
        "3|three",
        [
            ("They kicked.\nAnswer: 3", "right"),
            ("Answer: 3.0", "right"),
            ("Answer: the three", "right"),
            ("Answer: 4", "wrong"),
            ("3", "right"),  # without the line, the whole response counts
            (REFUSAL, "wrong"),
            ("<think>3", "unparsed"),
        ],
    ),
    "mgsm": (
        {"prefix": "答案"},
        "1,018",
        [("答案: 1018", "right"), ("答案：1,018.0", "right"), ("答案: 18", "wrong"),
         ("1018", "unparsed"), ("我不知道", "unparsed")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VERDICTS)
def test_known_verdicts(name):
    meta, answer, cases = VERDICTS[name]
    verifier = load_suite(name).verifier
    problem = Problem(uid="", question="", answer=answer, source="", meta=meta)
    found = [(text, verifier.verify(text, problem).status) for text, _ in cases]
    assert found == cases
    gold = f"<answer> {verifier.gold_text(problem)} </answer>"
    assert verifier.verify(gold, problem).status == "right"


def test_shuffled_choices_vote_by_their_text():
    verifier = load_suite("gpqa_diamond").verifier
    votes = [
        verifier.verify(
            f"Answer: {letter}",
            Problem(
                uid="", question="", answer="A", source="", meta={"choices": order, "problem": "p"}
            ),
        ).canonical
        for letter, order in (("A", ["x", "y", "z", "w"]), ("D", ["y", "z", "w", "x"]))
    ]
    assert votes == ["x", "x"]


@pytest.mark.parametrize(
    ("predicted", "gold", "value"),
    [
        ("John Smith", "Smith", 0.6667),
        ("the 35-yard pass", "35 yards", 0.4),  # 35, yard, pass against 35, yards
        ("4 field goals", "3 field goals", 0.0),
        ("field goals", "3 field goals", 0.0),
        ("$1,000", "1000", 1.0),
        ("Paris, France", "paris france", 1.0),
        ("", "x", 0.0),
    ],
)
def test_f1_of_drop(predicted, gold, value):
    assert drop_f1(predicted, gold) == pytest.approx(value, abs=1e-4)


def test_subjects_count_alike():
    groups = {
        str(i): [{"value": value, "canonical": None, "groups": {"subject": subject}}]
        for i, (value, subject) in enumerate([(1.0, "a"), (1.0, "a"), (1.0, "a"), (0.0, "b")])
    }
    score = subject_mean(groups)
    assert score["value"] == 0.5 and score["low"] == score["high"] == 0.5


def test_mmlu_redux_takes_the_corrected_letter_and_leaves_unsound_rows_out(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [("ok", None), ("wrong_groundtruth", "3"), ("wrong_groundtruth", "none of them"),
            ("bad_question_clarity", "2"), ("wrong_groundtruth", "B")]  # fmt: skip
    path.write_text(
        "".join(
            f'{{"question": "q{i}", "choices": ["a", "b", "c", "d"], "answer": 0,'
            f' "error_type": "{kind}", "correct_answer": "{answer}"}}\n'
            for i, (kind, answer) in enumerate(rows)
        )
    )
    assert [problem.answer for problem in MMLURedux(str(path)).problems()] == ["A", "D", "B"]


def test_patterns_take_linear_time():
    start = time.process_time()
    for text in ("A " * 50_000, "answer " * 15_000, "{" * 100_000, "Answer: " * 12_000):
        for name in ("mmlu", "mmlu_pro", "mmlu_redux", "ceval", "drop"):
            verifier = load_suite(name).verifier
            problem = Problem(uid="", question="", answer="C", source="", meta=FOUR)
            verifier.verify(text, problem)
    assert AnswerIs().letter("A " * 50_000, "ABCD") == "A"
    assert time.process_time() - start < 20
