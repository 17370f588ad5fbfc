"""How well the real model judges: graded answers to short questions, and pairs with a human choice.

    python -m experiments.real_model.judge r1_distill_graded.jsonl harmless-base.jsonl.gz

The first table has answers of a 14B model that a larger judge graded, the second conversations of
Anthropic's HH: those of one turn that ``experiments.real_stages`` gives its second reward model.
Both orders of a pair are judged. The interval of a pair's agreement is 95 % over pairs (bootstrap).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from experiments.launch import command_line, reported
from experiments.real_model.fetch import FOLDER
from experiments.real_stages.preferences import one_turn, split
from experiments.tables import as_markdown
from r1lit.endpoint.client import in_parallel
from r1lit.evaluation.suites.judged import AnswerJudge, agreement
from r1lit.files import Record, replace_json
from r1lit.metrics import mean
from r1lit.metrics.intervals import bootstrap_intervals
from r1lit.rollout import LocalModel, Sampling
from r1lit.verifiers import GenerativePreference

OUTPUT = Path("experiments/real_model/judge.json")
THREADS = 16


def grades(model: str, graded: Path, name: str, max_tokens: int) -> Record:
    """Return the agreement with the labelled answers of a suite."""
    judge = LocalModel(model, sampling=Sampling(temperature=0.0, max_tokens=max_tokens))
    started = time.perf_counter()
    own = agreement(AnswerJudge(judge, name, attempts=1, num_threads=THREADS), graded, name)
    seconds = (time.perf_counter() - started) / own["num_examples"]
    return {"task": name, "seconds_each": seconds, **own}


def preferences(model: str, pairs: Sequence[Record]) -> Record:
    """Return how often the chosen response of a pair is preferred, over both orders of each."""
    judge = GenerativePreference(
        LocalModel(model, sampling=Sampling(temperature=0.6, max_tokens=256)), attempts=1
    )
    orders = [(pair, first) for pair in pairs for first in ("chosen", "rejected")]
    started = time.perf_counter()

    def preference(order: tuple[Record, str], _: object) -> float | None:
        pair, first = order
        second = "rejected" if first == "chosen" else "chosen"
        return judge(pair["prompt"], pair[first], pair[second])

    values = in_parallel(preference, orders, THREADS)
    seconds = (time.perf_counter() - started) / len(orders)
    right: dict[int, list[float]] = {}
    shown_first, num_ties = [], 0
    for index, ((_, first), value) in enumerate(zip(orders, values, strict=True)):
        if value is None:
            continue
        agrees = 0.5 if value == 0 else float((value > 0) == (first == "chosen"))
        right.setdefault(index // 2, []).append(agrees)
        num_ties += value == 0
        shown_first += [value > 0] if value else []
    num_decided = sum(map(len, right.values()))
    row = {"task": "pairs", "num_examples": len(pairs), "seconds_each": seconds}
    row["no_verdict"] = 1 - num_decided / len(orders)
    if right:
        means = np.array([mean(own) for own in right.values()])
        row |= {"agreement": float(means.mean()), "ties": num_ties / num_decided}
        row["interval"] = [float(x) for x in bootstrap_intervals(means[:, None])[0]]
    if shown_first:
        row["first_shown"] = mean(shown_first)
    return row


@reported("experiments.real_model.judge")
def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.real_model.judge", __doc__)
    parser.add_argument("graded", type=Path, help="a table of graded answers")
    parser.add_argument("pairs", type=Path, help="the table of chosen and rejected conversations")
    parser.add_argument("--model", default=str(FOLDER), help="a chat model")
    parser.add_argument("--num-pairs", type=int, default=60, help="of them, at most 180")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="JSON; what it has is kept")
    options = parser.parse_args(arguments)
    pairs = split(one_turn(str(options.pairs)))["judge"][: options.num_pairs]
    tasks = {
        "simpleqa": partial(grades, options.model, options.graded, "simpleqa", 16),
        "frames": partial(grades, options.model, options.graded, "frames", 256),
        "pairs": partial(preferences, options.model, pairs),
    }
    rows = json.loads(options.output.read_text()) if options.output.is_file() else []
    for name, measure in tasks.items():
        if name not in [row["task"] for row in rows]:
            rows.append(measure())
            replace_json(options.output, rows)
    headings = ["task", "num_examples", "agreement", "kappa", "no_verdict", "seconds_each"]
    cells = [[str(row.get(key, "–"))[:6] for key in headings] for row in rows]
    print(as_markdown(headings, cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
