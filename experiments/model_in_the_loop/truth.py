"""What the reward models of a run are worth against the noise-free truth, on held-out responses.

    python -m experiments.model_in_the_loop.truth runs/model_in_the_loop

One was trained on pairs that the larger model compared, one on the annotators'. ``truth.json`` has
each one's accuracy over all pairs of responses to a held-out request that differ in true
helpfulness, and what its training pairs were.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from experiments.command import reported
from experiments.model_in_the_loop.agreement import problem_in, true_helpfulness
from r1lit.batches import Response
from r1lit.files import Record, read_existing, replace_json
from r1lit.rewards import RewardModel
from r1lit.search.scorers import UNGRADED


def truth(run: Path) -> dict[str, Any]:
    """Return for ``model`` and ``oracle`` the reward model's accuracy, and its pairs' numbers.

    Raises:
        ValueError: if a step before has not written its file.
    """
    records = [
        r for r in read_existing(run / "requests" / "responses.jsonl", "run") if r["finished"]
    ]
    responses = [
        Response(
            text=r["response"], problem=problem_in(r), verdict=UNGRADED, num_tokens=r["num_tokens"],
            finished=True,
        )
        for r in records
    ]  # fmt: skip
    helpful = [true_helpfulness(r) for r in records]
    numbers = {}
    for name in ("model", "oracle"):
        rewards = RewardModel(path=str(run / f"reward_{name}" / "policy"))(responses)
        card = json.loads((run / f"pairs_{name}" / "card.json").read_text())
        numbers[name] = {
            **pair_accuracy(records, rewards, helpful),
            "training_pairs": card["pairs"],
            "compared": card["pairs_compared"],
            "training_right": share_of_right_pairs(
                read_existing(run / f"pairs_{name}" / "pairs.jsonl", "run")
            ),
        }
    return numbers


def pair_accuracy(
    records: Sequence[Record], rewards: Sequence[float], helpful: Sequence[float]
) -> dict[str, float]:
    """Return how often the more helpful of two responses to a request has the higher reward.

    Pairs of equal helpfulness are left out; each request counts alike.
    """
    rows_of: dict[str, list[int]] = {}
    for row, record in enumerate(records):
        rows_of.setdefault(record["uid"], []).append(row)
    shares, num = [], 0
    for rows in rows_of.values():
        right = [
            (rewards[i] - rewards[j]) * (helpful[i] - helpful[j]) > 0
            for i, j in combinations(rows, 2)
            if helpful[i] != helpful[j]
        ]
        if right:
            shares.append(sum(right) / len(right))
            num += len(right)
    return {
        "accuracy": sum(shares) / max(1, len(shares)),
        "num_pairs": num,
        "num_requests": len(shares),
    }


def share_of_right_pairs(pairs: Sequence[Record]) -> float | None:
    """Return the share of training pairs whose chosen response is truly the more helpful."""
    differences = [
        true_helpfulness({"question": pair["prompt"], "response": pair["chosen"]})
        - true_helpfulness({"question": pair["prompt"], "response": pair["rejected"]})
        for pair in pairs
    ]
    return sum(d > 0 for d in differences) / len(differences) if differences else None


@reported("truth")
def main(args: Sequence[str] | None = None) -> int:
    """Score one run's reward models and write ``truth.json``; return the exit status."""
    parser = argparse.ArgumentParser(description="Reward models against the true preference.")
    parser.add_argument("run", type=Path, help="the run folder of one seed")
    options = parser.parse_args(args)
    numbers = truth(options.run)
    replace_json(options.run / "truth.json", numbers)
    print(numbers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
