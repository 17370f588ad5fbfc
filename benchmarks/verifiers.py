"""Verdicts a second on gold answers of GSM8K and MATH, warm, and the time they add to a rollout.

    python -m benchmarks.verifiers [--only rates|rollout]

Rates: half the responses are right, half have a changed first digit; every response has thinking
around its answer. ``math`` takes rows as they come, ``math distinct`` each answer once: equal pairs
of answer and gold answer are decided once, which flatters the first. ``math right`` and ``math
wrong`` are of the same gold answers, those that are no plain number, each once: the right answers
are written in another way, the wrong ones are other problems' answers. Goals: 2,000 GSM8K and 300
MATH verdicts a second over 2 workers, wrong answers as fast as right.

Rollout: responses end evenly over ``--seconds``, while the rollout leaves the CPU free, as it does
when an accelerator decodes; one response in 256 hangs the verifier until its time limit. The time
added is that from the last response's end to the verdicts and rewards of all, over the time before,
with grading begun early and at the end. Goal: 2 %.

P prompts   G responses per prompt
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from r1lit.batches import Problem, PromptBatch
from r1lit.policy import load_tokenizer
from r1lit.rewards import Accuracy, Format
from r1lit.rollout import Completion, ModelSpec, OnFinished, Request, RolloutEngine, Sampling
from r1lit.rollout.worker import RolloutWorker, Timings
from r1lit.verifiers import Grader, MathVerifier

GOALS = {"gsm8k": 2000, "math": 300, "math distinct": 300}
GOAL_ADDED = 0.02
GROUP_SIZE = 16
HANGS = "(10^{9})!"
THINKING = "<think> " + "Let me add these numbers up. " * 40 + "</think> "


def golds(folder: Path) -> dict[str, list[str]]:
    """Return the gold answers of each data set."""
    gsm8k = (folder / "gsm8k_train.jsonl").read_text().splitlines()
    math = json.loads((folder / "math_train.json").read_text())
    return {
        "gsm8k": [json.loads(line)["answer"].split("####")[-1].strip() for line in gsm8k],
        "math": [row["answer"] for row in math if row["answer"]],
        "math distinct": sorted({row["answer"] for row in math if row["answer"]}),
    }


def spread(answers: Sequence[str], limit: int) -> list[str]:
    """Return at most ``limit`` of the answers, at even spaces."""
    return list(answers[:: max(1, len(answers) // limit)][:limit])


def is_expression(answer: str) -> bool:
    """Decide whether an answer is one expression, but no plain number."""
    return bool(re.search(r"\\|[a-z]", answer)) and not re.search(
        r"[=,<>]|text|mbox|matrix|circ|\.$|[lg]e|\\in", answer
    )


def changed(answer: str) -> str:
    """Return the answer with its first digit changed."""
    return re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), answer, count=1)


def reworded(answer: str) -> str:
    """Return the answer written in another way."""
    return answer.replace("\\frac", "\\tfrac ").replace("+", " + ") + " + 0"


def verdicts_per_second(
    verifier: MathVerifier, answers: list[str], texts: list[str] | None = None
) -> tuple[float, dict[str, int]]:
    """Return verdicts a second over ``answers``, and how many had each status."""
    if texts is None:
        texts = [a if n % 2 else changed(a) for n, a in enumerate(answers)]
    responses = [f"{THINKING}<answer> {text} </answer>" for text in texts]
    problems = [Problem(uid="", question="", answer=a, source="") for a in answers]
    start = time.perf_counter()
    verdicts = verifier.verify_batch(responses, problems)
    seconds = time.perf_counter() - start
    statuses = [verdict.status for verdict in verdicts]
    return len(verdicts) / seconds, {status: statuses.count(status) for status in set(statuses)}


class Paced(RolloutEngine):
    """Says ``texts``, one a row, each ending a little after the one before."""

    def __init__(self, texts: Sequence[str], seconds: float, early: bool) -> None:
        self.texts = texts
        self.seconds = seconds
        self.early = early

    def generate(
        self, requests: Sequence[Request], on_finished: OnFinished | None = None
    ) -> list[Completion]:
        """Wait and hand over; see ``RolloutEngine.generate``."""
        completions = []
        tokens = [list(self.model.tokenizer(text)["input_ids"]) for text in self.texts]
        start = time.perf_counter()
        for row, ids in enumerate(tokens):
            end = start + self.seconds * (row + 1) / len(tokens)
            time.sleep(max(0.0, end - time.perf_counter()))
            completions.append(Completion(token_ids=torch.tensor(ids), finish_reason="stop"))
            if self.early and on_finished is not None:
                on_finished([row], completions[-1:])
        return completions


def seconds_added(grader: Grader, answers: Sequence[str], seconds: float, early: bool) -> float:
    """Return the seconds that judging adds to a rollout of ``seconds``."""
    rows = [(answer, g) for answer in answers for g in range(GROUP_SIZE)]
    said = [a if g % 2 else changed(a) for a, g in rows]
    said[::256] = [HANGS] * len(said[::256])
    batch = PromptBatch(
        iteration=0,
        problems=tuple(Problem(uid=a, question="", answer=a, source="") for a in answers),
        prompts=((0,),) * len(answers),
        group_size=GROUP_SIZE,
        num_prompts=len(answers),
        positions=tuple(range(len(answers))),
    )
    tokenizer = load_tokenizer("models/mini")
    engine = Paced([f"{THINKING}<answer> {s} </answer>" for s in said], seconds, early)
    engine.bind(ModelSpec(name="models/mini", tokenizer=tokenizer))
    worker = RolloutWorker(
        engine=engine,
        grader=grader,
        rewards=[Accuracy(), Format()],
        tokenizer=tokenizer,
        sampling=Sampling(),
        seed=0,
        device=torch.device("cpu"),
    )
    timings = Timings()
    worker.collect(batch, range(len(answers)), timings)
    return timings.grade


def rates(data: Path, num_workers: int, limit: int) -> None:
    """Print one line a data set: verdicts a second, goal, statuses."""
    verifier = MathVerifier(num_workers=num_workers)
    sets = golds(data)
    for name, answers in sets.items():
        verdicts_per_second(verifier, spread(answers, 200))  # warm up
        rate, statuses = verdicts_per_second(verifier, spread(answers, limit))
        print(f"{name}: {rate:.0f} verdicts/s (goal {GOALS[name]}), {statuses}")
    expressions = spread([a for a in sets["math distinct"] if is_expression(a)], limit)
    others = [*expressions[1:], expressions[0]]
    for name, texts in (("right", list(map(reworded, expressions))), ("wrong", others)):
        verifier.close()  # forget what was read
        verdicts_per_second(verifier, ["\\sqrt{2}"] * 9)
        rate, statuses = verdicts_per_second(verifier, expressions, texts)
        print(f"math {name}: {rate:.0f} verdicts/s, {statuses}")
    verifier.close()


def rollout(data: Path, num_prompts: int, seconds: float) -> None:
    """Print one line each for judging early and at the end."""
    grader = Grader({"math": MathVerifier()})
    distinct = golds(data)["math distinct"]
    grader.verdicts(
        ["<answer> x </answer>"] * 2, [Problem(uid="", question="", answer="y", source="")] * 2
    )
    for early in (True, False):
        answers = spread(distinct[early:], num_prompts)
        added = seconds_added(grader, answers, seconds, early)
        print(
            f"judged {'early' if early else 'at the end'}: {added:.2f} s added to"
            f" {seconds:.0f} s, {added / seconds:.1%} (goal {GOAL_ADDED:.0%})"
            f" for {len(answers) * GROUP_SIZE} responses"
        )
    grader.close()


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=["rates", "rollout"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=int, default=2000, help="verdicts of each rate")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    if options.only != "rollout":
        rates(options.data, options.workers, options.limit)
    if options.only != "rates":
        rollout(options.data, options.prompts, options.seconds)


if __name__ == "__main__":
    main()
