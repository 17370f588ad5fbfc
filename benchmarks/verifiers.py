"""Verdicts a second on gold answers of GSM8K and MATH, warm.

``python -m benchmarks.verifiers``. Half the responses are right, half have a changed first digit;
every response has thinking around its answer. ``math`` takes rows as they come, ``math distinct``
each answer once: equal pairs of answer and gold answer are decided once, which flatters the first.
``math right`` and ``math wrong`` are of the same gold answers, those that are no plain number, each
once: the right answers are written in another way, the wrong ones are other problems' answers.
Goals: 2,000 GSM8K and 300 MATH verdicts a second over 2 workers, wrong answers as fast as right.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path

from r1lit.batches import Problem
from r1lit.verifiers import MathVerifier

GOALS = {"gsm8k": 2000, "math": 300, "math distinct": 300}
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


def measure(
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


def main() -> None:
    """Print one line a data set: verdicts a second, goal, statuses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=int, default=2000)
    arguments = parser.parse_args()
    verifier = MathVerifier(num_workers=arguments.workers)
    for name, answers in golds(arguments.data).items():
        measure(verifier, answers[:: max(1, len(answers) // 200)])  # warm up
        step = max(1, len(answers) // arguments.limit)
        rate, statuses = measure(verifier, answers[::step][: arguments.limit])
        print(f"{name}: {rate:.0f} verdicts/s (goal {GOALS[name]}), {statuses}")
    expressions = [a for a in golds(arguments.data)["math distinct"] if is_expression(a)]
    step = max(1, len(expressions) // arguments.limit)
    expressions = expressions[::step][: arguments.limit]
    others = [*expressions[1:], expressions[0]]
    for name, texts in (("right", list(map(reworded, expressions))), ("wrong", others)):
        verifier.close()  # forget what was read
        measure(verifier, ["\\sqrt{2}"] * 9)
        rate, statuses = measure(verifier, expressions, texts)
        print(f"math {name}: {rate:.0f} verdicts/s, {statuses}")
    verifier.close()


if __name__ == "__main__":
    main()
