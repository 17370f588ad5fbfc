"""Tasks of reasoning-gym whose scorers pay constants or hedges are refused for training."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tiny import data, grpo_config

from r1lit.cli import main
from r1lit.data import ReasoningGym
from r1lit.problems import Problem, Verdict
from r1lit.verifiers import Grader, ReasoningGymVerifier, Verifier, check_rewarded
from r1lit.verifiers.base import conclude
from r1lit.verifiers.reasoning_gym import CONSTANTS, HEDGES, payment_of

PAGE = Path(__file__).parents[2] / "docs" / "REASONING_GYM.md"


def problem(uid: int, answer: str, task: str = "sums") -> Problem:
    meta = {"task": task, "entry": {}}
    return Problem(uid=str(uid), question="", answer=answer, source=task, meta=meta)


class Pays(Verifier):
    """Finds the gold answer right, and one text more, which may be made of the gold answer."""

    needs_answer = False

    def __init__(self, form: str = "") -> None:
        self.form = form
        self.seen: list[str] = []

    def verify(self, response: str, problem: Problem) -> Verdict:
        text = response.removeprefix("<answer>").removesuffix("</answer>").strip()
        self.seen.append(text)
        right = text in (problem.answer, self.form.format(gold=problem.answer, other=OTHER))
        return conclude("right" if right else "wrong", text, "")


OTHER = "31"
SUMS = [problem(0, "17"), problem(1, OTHER), problem(2, "0")]


@pytest.mark.parametrize("form", [*(c for c in CONSTANTS if c != "{}"), *HEDGES])
def test_each_probe_finds_the_scorer_that_pays_it(form: str):
    payment, _, wanted = payment_of(SUMS, Pays(form))
    assert payment is not None and payment.form == form and wanted == 3
    assert payment.problem is not SUMS[2] or form != "0"


def test_a_constant_that_is_the_gold_answer_is_no_payment():
    golds = ["0", "1", "-1.0", "0.001", "True", "[]", "0.0 + 0.0i", "nan"]
    for answers in (golds, [golds[0]] * 3):
        pays_gold = Pays()
        sample = [problem(i, gold) for i, gold in enumerate(answers)]
        assert payment_of(sample, pays_gold)[0] is None
        assert pays_gold.seen


def test_a_slow_task_is_probed_for_a_bounded_time():
    class Slow(Pays):
        def verify(self, response: str, problem: Problem) -> Verdict:
            time.sleep(0.002)
            return super().verify(response, problem)

    payment, tried, wanted = payment_of(SUMS, Slow(), seconds=0.01)
    assert payment is None and (tried, wanted) == (1, 3)


def test_training_names_a_task_that_pays_and_evaluation_takes_it():
    pytest.importorskip("reasoning_gym")
    grader = Grader()
    for task, paid in (
        ("coin_flip", "'0'"),
        ("complex_arithmetic", "'nan'"),
        ("fraction_simplification", " or 99'"),
        ("survo", "'not "),
    ):
        problems = [*ReasoningGym("gcd", 20).problems(), *ReasoningGym(task, 20).problems()]
        with pytest.raises(
            ValueError, match=f"^data.train: the scorer of reasoning-gym's {task}"
        ) as e:
            check_rewarded(grader, problems, "data.train")
        assert paid in str(e.value) and "\n" not in str(e.value)
        verifier = ReasoningGymVerifier()  # its scores are the third party's still
        for one in problems[20:]:
            assert verifier.verify(f"<answer> {one.answer} </answer>", one).status == "right"


@pytest.mark.long
def test_fit_refuses_a_task_that_pays(tmp_path: Path, policy: Path):
    pytest.importorskip("reasoning_gym")
    source = {"class_path": "r1lit.data.ReasoningGym", "init_args": {"num_problems": 16}}
    source["init_args"]["task"] = "coin_flip"  # type: ignore[index]
    change = data(train=[source], validation=[source], allow_overlap=True)
    config = grpo_config(tmp_path / "run", policy, change)
    with pytest.raises(
        ValueError, match=r"^data.train: the scorer of reasoning-gym's coin_flip pays"
    ):
        main(["fit", "-c", str(config)])


@pytest.mark.long
def test_the_page_has_every_task_and_says_what_is_found():
    pytest.importorskip("reasoning_gym")
    from r1lit.evaluation.gym_tasks import page, row_of, task_names

    text = PAGE.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == task_names()
    assert text == page(rows)
    for task in (
        "coin_flip",
        "complex_arithmetic",
        "gsm_symbolic",
        "gcd",
        "circuit_logic",
        "survo",
    ):
        start = time.process_time()
        assert row_of(task) in rows, task
        assert time.process_time() - start < 3.0, task


@pytest.mark.slow
def test_the_page_is_what_its_command_writes(tmp_path: Path):
    pytest.importorskip("reasoning_gym")
    from r1lit.evaluation.gym_tasks import main as write

    write([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
