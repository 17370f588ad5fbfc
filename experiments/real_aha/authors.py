"""Numbers of gate 1 that exact authors reach: what a policy can at best have learnt from priming.

    python -m experiments.real_aha.authors       # nothing is trained

Each held-out problem gets 16 responses by authors of the priming documents, without a slip. The
command repeats that, and prints the numbers and the share of repetitions that pass the gate. A gate
that the authors fail would refuse a sound policy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from experiments.launch import command_line, reported
from experiments.real_aha.pilot import GATE_1, failures, gate_1
from experiments.real_aha.reading import Reading, read
from experiments.real_aha.traces import (
    GIVE_UP,
    GO_ON,
    Searches,
    answered,
    separator,
    stops_at,
    written,
)
from experiments.tables import as_markdown
from r1lit.batches import Problem
from r1lit.metrics import mean
from r1lit.seeding import generator
from r1lit.verifiers.countdown import CountdownVerifier
from r1lit.worlds.search_corpus import places

NUM_PROBLEMS, NUM_SAMPLES = 48, 16
GoOn = tuple[float, float]


def response(problem: Problem, seed: int, sample: int, go_on: GoOn = GO_ON) -> str:
    """Return an author's whole response to a problem."""
    numbers, needed = tuple(problem.meta["numbers"]), int(problem.meta["attempts"])
    search = places(numbers)
    rng = generator(seed, "real_aha author", problem.uid, sample)
    stop = stops_at(rng, 0, needed, go_on)
    own = written(search, 0, stop)
    if stop == needed:
        return f"{own}. {answered(search[needed - 1])}"
    return f"{own}{separator(search, stop)}{GIVE_UP} give up."


def evaluation(
    problems: Sequence[Problem], seed: int, go_on: GoOn = GO_ON
) -> dict[str, list[tuple[Reading, bool]]]:
    """Return the authors' responses to each problem as gate 1 takes them."""
    verifier = CountdownVerifier()
    found: dict[str, list[tuple[Reading, bool]]] = {}
    for problem in problems:
        for sample in range(NUM_SAMPLES):
            text = response(problem, seed, sample, go_on)
            own = read(text, problem.meta["numbers"], problem.meta["target"])
            right = verifier.verify(text, problem).status == "right"
            found.setdefault(problem.uid, []).append((own, right))
    return found


@reported("experiments.real_aha.authors")
def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.real_aha.authors", __doc__)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--go-on", type=float, nargs=2, default=GO_ON, help="Beta distribution")
    options = parser.parse_args(arguments)
    problems = Searches("held_out", NUM_PROBLEMS).problems()
    runs = [
        gate_1(evaluation(problems, seed, tuple(options.go_on)))
        for seed in range(options.repetitions)
    ]
    rows = [
        [name, *(f"{value:.3f}" for value in (mean(own), min(own), max(own), passed))]
        for name, bound in GATE_1.items()
        if (own := [run[name] for run in runs])
        if (passed := mean([float(bound.allows(value)) for value in own])) is not None
    ]
    print(as_markdown(["number", "mean", "least", "most", "passed"], rows))
    whole = mean([float(not failures(run, GATE_1)) for run in runs])
    print(f"\n{whole:.3f} of {len(runs)} evaluations pass gate 1")
    return 0


if __name__ == "__main__":
    sys.exit(main())
