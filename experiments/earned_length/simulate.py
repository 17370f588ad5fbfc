"""Simulates authors of given habits on held-out problems: what RL could reach by habits alone.

    python -m experiments.earned_length.simulate

It prints a table, which README.md holds.
"""

from __future__ import annotations

from dataclasses import replace

from r1lit.metrics import mean
from r1lit.metrics.estimates import Graded, cons_at_k
from r1lit.policy import load_tokenizer
from r1lit.seeding import generator
from r1lit.worlds import WorldSearch
from r1lit.worlds.corpus import tagged
from r1lit.worlds.search_corpus import GO_ON, Authors, places, write
from r1lit.worlds.writing import Work

NUM_PROBLEMS, NUM_SAMPLES = 120, 16
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


def main() -> None:
    """Print the table as Markdown."""
    print(f"| chance to go on | to check | pass@1 | cons@{NUM_SAMPLES} | tokens |")
    print("|---|---|---:|---:|---:|")
    for chances in AUTHORS:
        names = [
            f"Beta{beta} (the corpus)" if chance is None else f"{chance:g}"
            for chance, beta in zip(chances, (GO_ON, Authors().check_beta), strict=True)
        ]
        accuracy, vote, tokens = simulate(*chances)
        print(f"| {names[0]} | {names[1]} | {accuracy:.3f} | {vote:.3f} | {tokens:.0f} |")


if __name__ == "__main__":
    main()
