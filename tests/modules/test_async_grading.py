"""Responses are judged while others still decode, and get what they would get at the end."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path

import pytest
import torch
from test_grpo_module import untimed
from tiny import TiredVerifier, data, model, save_policy_that_ends
from tiny_models import EOS, make_tokenizer, says

from r1lit.batches import Problem, PromptBatch, Verdict
from r1lit.rewards import Accuracy
from r1lit.rollout import Completion, InProcessEngine, ModelSpec, Sampling
from r1lit.rollout.grading import BackgroundGrading
from r1lit.rollout.worker import RolloutWorker, Timings
from r1lit.verifiers import CountdownVerifier, FunctionalCodeVerifier, Grader, MathVerifier

HANGS = "(10^{9})!"
LONG = 12.0  # for a verdict that ends, on a machine that has other things to do
FENCE = "`" * 3


def math(answer: str, gold: str) -> tuple[str, Problem]:
    return f"<answer>{answer}</answer>", Problem(uid=gold, question="", answer=gold, source="m")


def code(body: str) -> tuple[str, Problem]:
    meta = {"tests": ["assert f(1) == 2"]}
    problem = Problem(
        uid="f", question="", answer="", source="c", verifier="functional_code", meta=meta
    )
    return f"{FENCE}python\ndef f(x):\n    return {body}\n{FENCE}", problem


def countdown(expression: str) -> tuple[str, Problem]:
    meta = {"numbers": [3, 4], "target": 12}
    problem = Problem(uid="n", question="", answer="", source="n", verifier="countdown", meta=meta)
    return f"<answer>{expression}</answer>", problem


ROWS = [
    math("0.5", r"\frac{1}{2}"), math(HANGS, r"\frac{1}{2}"), math("1/3", r"\frac{1}{2}"),
    math("0.5", r"\frac{1}{2}"), math("x", "x + 1"), math("7", "7"),
    ("no answer", math("", "7")[1]), code("x + 1"), code("x"),
    code("(lambda f: f(f))(lambda f: f(f))"), code("sum(0 for _ in iter(int, 1))"),
    countdown("3 * 4"), countdown("3 + 4"),
]  # fmt: skip
STATUSES = [
    "right", "timeout", "wrong", "right", "wrong", "right", "unparsed",
    "right", "wrong", "wrong", "timeout", "right", "wrong",
]  # fmt: skip


@pytest.fixture(scope="module")
def grader():
    grader = Grader(
        {
            "math": MathVerifier(timeout_s=LONG),
            "functional_code": FunctionalCodeVerifier(timeout_s=LONG),
            "countdown": CountdownVerifier(),
        }
    )
    yield grader
    grader.close()


@pytest.mark.slow
@pytest.mark.parametrize("num_begun", [0, 8])
def test_verdicts_do_not_depend_on_when_they_were_begun(grader: Grader, num_begun: int):
    tokenizer = make_tokenizer()
    completions = [
        Completion(
            token_ids=torch.tensor([*tokenizer(text)["input_ids"], EOS]), finish_reason="stop"
        )
        for text, _ in ROWS
    ]
    order = random.Random(num_begun).sample(range(len(ROWS)), num_begun)
    with BackgroundGrading(grader, tokenizer, [problem for _, problem in ROWS]) as grading:
        for start in range(0, num_begun, 2):
            rows = order[start : start + 2]
            grading.begin(rows, [completions[row] for row in rows])
        graded = grading.finish(completions)
    assert [response.text for response in graded] == [text for text, _ in ROWS]
    assert [response.verdict.status for response in graded] == STATUSES
    assert [response.num_tokens for response in graded] == [len(c.token_ids) for c in completions]
    votes = [response.verdict.canonical for response in graded]
    assert votes[:6] == ["1/2", None, "1/3", "1/2", "x", "7"] and votes[11] is not None


class Waiting(TiredVerifier):
    """Tells when it has decided."""

    in_background = True

    def __init__(self) -> None:
        self.decided = threading.Event()

    def verify(self, response: str, problem: Problem) -> Verdict:
        verdict = super().verify(response, problem)
        self.decided.set()
        return verdict


class Patient(InProcessEngine):
    """Decodes its sixth token only once something has been decided."""

    def __init__(self, decided: threading.Event) -> None:
        super().__init__(compile=False)
        self.decided = decided

    def stopping_criterion(self, *arguments):
        ends = super().stopping_criterion(*arguments)

        def ended(token_R, response_BT, rows, token):
            assert token < 5 or self.decided.wait(60), "nothing is judged while others decode"
            return ends(token_R, response_BT, rows, token)

        return ended


def collect(grader: Grader, engine: InProcessEngine):
    """Roll out a prompt whose responses end at once, and one whose do not end."""
    problem = Problem(uid="", question="", answer="", source="", verifier="tired")
    batch = PromptBatch(
        iteration=0,
        problems=(problem, problem),
        prompts=((10,), (20,)),
        group_size=2,
        num_prompts=2,
        positions=(0, 1),
    )
    policy = says([10, 65, EOS], [20, 66, 20])
    engine.bind(ModelSpec(name="tiny", tokenizer=make_tokenizer(), policy=policy))
    worker = RolloutWorker(
        engine=engine,
        grader=grader,
        rewards=[Accuracy()],
        tokenizer=make_tokenizer(),
        sampling=Sampling(max_tokens=9),
        seed=0,
        device=torch.device("cpu"),
    )
    return worker.collect(batch, range(2), Timings())


def test_a_finished_response_is_judged_while_others_still_decode():
    verifier = Waiting()
    rollout = collect(Grader({"tired": verifier}), Patient(verifier.decided))
    assert [r.finished for r in rollout.responses] == [True, True, False, False]
    assert [r.verdict.status for r in rollout.responses] == ["wrong", "wrong", "timeout", "timeout"]


def test_a_verifier_of_this_process_is_asked_in_this_thread_once_all_is_there():
    class Here(TiredVerifier):
        threads: list[threading.Thread] = []  # noqa: RUF012

        def verify_batch(self, responses, problems):
            self.threads.append(threading.current_thread())
            return super().verify_batch(responses, problems)

    collect(Grader({"tired": Here()}), InProcessEngine(compile=False))
    assert Here.threads == [threading.main_thread()]


def test_what_a_verifier_raises_early_is_raised():
    class Broken(Waiting):
        def verify(self, response: str, problem: Problem) -> Verdict:
            if threading.current_thread() is not threading.main_thread():
                self.decided.set()
                raise ValueError("meta: no tests")
            return super().verify(response, problem)

    verifier = Broken()
    with pytest.raises(ValueError, match="meta: no tests"):
        collect(Grader({"tired": verifier}), Patient(verifier.decided))


class Silent(InProcessEngine):
    """Never calls ``on_finished``."""

    def generate(self, requests, on_finished=None):
        return super().generate(requests)


class BackgroundJudge(Grader):
    """Has every problem judged by a verifier in the background."""

    def __init__(self) -> None:
        verifier = Waiting()
        super().__init__(dict.fromkeys(Grader().verifiers, verifier))


@pytest.mark.slow
def test_a_run_does_not_depend_on_when_its_responses_are_judged(fit, tmp_path: Path):
    grader = {"class_path": "test_async_grading.BackgroundJudge"}
    change = [model(grader=grader, sampling={"max_tokens": 24}), data(num_iterations=2)]
    fit("early", *change)
    fit("late", *change, model(engine={"class_path": "test_async_grading.Silent"}))
    assert untimed(tmp_path / "early") == untimed(tmp_path / "late")
    early, late = ((tmp_path / name / "responses.jsonl").read_text() for name in ("early", "late"))
    assert early == late and {json.loads(line)["finished"] for line in early.splitlines()} == {
        True,
        False,
    }


def word_problems(path: Path, numbers: range) -> dict[str, object]:
    """Write word problems in the form of GSM8K; return the YAML of their source."""
    lines = [
        {
            "question": f"Tom has {n} pens and buys {n} more. How many has he?",
            "answer": f"{n} + {n} = <<{n}+{n}={2 * n}>>{2 * n}\n#### {2 * n}",
        }
        for n in numbers
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    init_args = {"path": str(path), "answer_pattern": r"####\s*(.+)", "source": "gsm8k"}
    return {"class_path": "r1lit.data.TableProblems", "init_args": init_args}


@pytest.mark.long
def test_a_run_on_mathematics_alone_in_which_every_response_ends(fit, tmp_path: Path):
    """Every verdict is begun while others decode, and none is left for the end of the rollout."""
    fit(
        "run",
        model(
            policy=str(save_policy_that_ends(tmp_path / "ends")),
            rewards=[{"class_path": "r1lit.rewards.Accuracy"}, {"class_path": "tiny.DigitShare"}],
            sampling={"max_tokens": 64},
        ),
        data(
            train=[word_problems(tmp_path / "train.jsonl", range(1, 17))],
            validation=[word_problems(tmp_path / "test.jsonl", range(17, 21))],
            num_iterations=2,
        ),
    )
    run = tmp_path / "run"
    lines = [json.loads(line) for line in (run / "responses.jsonl").read_text().splitlines()]
    assert lines and all(line["finished"] for line in lines)
    assert [line["iteration"] for line in untimed(run)] == [0, 1]
