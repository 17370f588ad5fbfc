"""Simulates authors of given habits on held-out problems: what RL could reach by habits alone.

    python -m experiments.earned_length.simulate

It writes ``simulated.jsonl`` and prints the table of it that README.md holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from experiments.tables import as_markdown
from r1lit.files import Record, write_records
from r1lit.metrics import mean
from r1lit.metrics.estimates import Graded, cons_at_k
from r1lit.policy import load_tokenizer
from r1lit.seeding import generator
from r1lit.worlds import WorldSearch
from r1lit.worlds.corpus import tagged
from r1lit.worlds.search_corpus import GO_ON, Authors, places, write
from r1lit.worlds.writing import Work

NUM_PROBLEMS, NUM_SAMPLES = 120, 16
SIMULATED = Path(__file__).with_name("simulated.jsonl")
AUTHORS: tuple[tuple[float | None, float | None], ...] = (
    (None, None),
    (0.95, None),
    (1.0, None),
    (0.98, 0.9),
    (0.995, 0.97),
    (1.0, 1.0),
)
"""Their chances to go on and to check; None: as authors of the corpus."""


def simulate(go_on: float | None, check: float | None) -> tuple[float, float, float]:
    """Return pass@1, cons@16 and the tokens of a response."""
    tokenizer = load_tokenizer("models/search")
    right, votes, tokens = [], [], []
    for problem in WorldSearch("held_out", NUM_PROBLEMS).problems():
        search, group = places(tuple(problem.meta["numbers"])), []
        for sample in range(NUM_SAMPLES):
            rng = generator(sample, problem.uid)
            habits = Authors().draw(rng)
            habits = replace(
                habits,
                go_on=habits.go_on if go_on is None else go_on,
                check=habits.check if check is None else check,
            )
            post = write(search, problem.meta["target"], habits, rng)
            claimed = (post.claimed or search[int(rng.integers(len(search)))]).attempt
            text = tagged(Work(thinking=post.text, answer=claimed.expression), rng)
            tokens.append(len(tokenizer.encode(text)) + 1)
            is_right = claimed.second.result == problem.meta["target"]
            group.append(Graded(right=is_right, vote=str(claimed.second.result)))
        right += [graded.right for graded in group]
        votes.append(cons_at_k(group)[-1])
    return mean(right), mean(votes), mean(tokens)


def as_table(rows: Sequence[Record]) -> str:
    """Return the Markdown table of `simulated.jsonl`."""
    beta = {"go_on": GO_ON, "check": Authors().check_beta}
    cells = [
        [
            *(
                f"Beta{beta[key]} (the corpus)" if row[key] is None else f"{row[key]:g}"
                for key in beta
            ),
            f"{row['pass_at_1']:.3f}",
            f"{row['cons']:.3f}",
            f"{row['tokens']:.0f}",
        ]
        for row in rows
    ]
    headings = ["probability to continue", "to verify", "pass@1", f"cons@{NUM_SAMPLES}", "tokens"]
    return as_markdown(headings, cells, num_text=2)


def tokens_for(pass_at_1: float, rows: Sequence[Record]) -> float:
    """Return the tokens with which authors reach an accuracy, between two rows linearly."""
    x, y = zip(*sorted((row["pass_at_1"], row["tokens"]) for row in rows), strict=True)
    return float(np.interp(pass_at_1, x, y))


def main() -> None:
    """Write ``simulated.jsonl`` and print the table as Markdown."""
    rows = []
    for go_on, check in AUTHORS:
        accuracy, vote, tokens = simulate(go_on, check)
        rows.append({"go_on": go_on, "check": check, "pass_at_1": accuracy, "cons": vote,
                     "tokens": tokens})  # fmt: skip
    write_records(SIMULATED, rows)
    print(as_table(rows))


if __name__ == "__main__":
    main()
