"""The pilot: three gates before the study, in order; each is a line of ``pilot.jsonl``.

    python -m experiments.real_aha.pilot             # about an hour on a CPU with bfloat16

Gate 1 primes the search arm and measures its responses. Gate 2 bans giving up at decoding. Gate 3
makes 15 iterations of RL at two learning rates. A gate that failed stops the pilot with a line that
says what to change. Finished runs are kept, so the same command continues; after a change delete
what it concerns under ``runs/real_aha/pilot``.

Shares of right answers are those of problems of six attempts and more, where the claims are made:
most authors solve a problem of one or two attempts, so easy levels alone would break the upper
bound. The other numbers of gate 1 are of all problems.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import yaml

from experiments.by_source import evaluated_in
from experiments.launch import command_line, error_in, in_subprocess, reported
from experiments.real_aha.reading import Reading, read
from experiments.real_aha.traces import (
    GIVE_UP,
    MODEL,
    Count,
    PrimingDocuments,
    Searches,
    answered,
    counted_by,
    wording,
    written,
)
from experiments.tables import as_markdown, means_by_problem
from r1lit.batches import Problem
from r1lit.device.cpu.machine import has_fast_bfloat16
from r1lit.files import Record, read_records, write_records
from r1lit.metrics import mean, paired_difference
from r1lit.metrics.estimates import pass_at_k
from r1lit.policy import load_tokenizer
from r1lit.text.prompts import CHAT, prompt_text
from r1lit.worlds.search_corpus import places

HERE = Path("experiments/real_aha")
RUNS = Path("runs/real_aha/pilot")
RATES = (3.0e-4, 1.0e-3)
ITERATIONS = 15
EDGE = 5
"""Iterations averaged at both ends of a run, since one iteration has 64 responses."""
LEAST = 6
"""Attempts that a problem needs for the claims to be about it."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The least and the most that a gate allows of a number."""

    low: float = float("-inf")
    high: float = float("inf")

    def allows(self, value: float) -> bool:
        """Return whether a value is within the bounds."""
        return self.low <= value <= self.high


GATE_1 = {
    "wrong_computations": Bound(high=0.03),
    "well_formed": Bound(low=0.9),
    "out_of_order": Bound(high=0.1),
    "pass@1": Bound(low=0.1, high=0.3),
    "pass@16": Bound(low=0.5),
    "mixed_groups": Bound(low=0.6),
    "eight_attempts": Bound(low=0.05),
}
GATE_2 = {"rise": Bound(low=0.2)}
GATE_3 = {"accuracy_rise": Bound(low=0.08), "attempts_rise_low": Bound(low=1e-9)}
"""``attempts_rise_low`` is the lower end of the 95 % interval over the 48 evaluated problems, so a
rise counts only if sampling 4 responses to each would hardly make it."""
MEND = {
    1: "prime longer, or with max_number: 9; change experiments/real_aha/prime.yaml",
    2: "length cannot pay: change the traces before any RL",
    3: "change the learning rate or the levels in experiments/real_aha/rl.yaml",
}


def gate_1(responses: Mapping[str, Sequence[tuple[Reading, bool]]]) -> dict[str, float]:
    """Return the numbers of gate 1.

    Args:
        responses: by the uid of the problem, each as read and whether it is right; as many of each.
    """
    every = [own for group in responses.values() for own in group]
    readings = [reading for reading, _ in every]
    groups = [[right for _, right in responses[uid]] for uid in responses if is_hard(uid)]
    k = min([16, *map(len, groups)])
    attempts = sum(own.attempts for own in readings)
    out_of_order = sum(own.skipped + own.repeated for own in readings)
    return {
        "wrong_computations": share(sum(r.wrong for r in readings),
                                    sum(r.computations for r in readings)),
        "well_formed": mean([float(own.well_formed) for own in readings]),
        "out_of_order": share(out_of_order, attempts),
        "pass@1": mean([share(sum(own), len(own)) for own in groups]),
        f"pass@{k}": mean([pass_at_k(len(own), sum(own), k) for own in groups]),
        "mixed_groups": mean([float(0 < sum(own) < len(own)) for own in groups]),
        "eight_attempts": mean([float(own.attempts >= 8) for own in readings]),
    }  # fmt: skip


def gate_2(free: float, banned: float) -> dict[str, float]:
    """Return the numbers of gate 2: pass@1 without and with the ban on giving up."""
    return {"pass@1": free, "pass@1_banned": banned, "rise": banned - free}


def gate_3(
    accuracies: Sequence[float], before: Mapping[str, float], after: Mapping[str, float]
) -> dict[str, float]:
    """Return the numbers of gate 3.

    Args:
        accuracies: of training, one an iteration; the last ones less the first.
        before: mean attempts of a response by problem, evaluated before the first iteration.
        after: the same after the last iteration.
    """
    rise = paired_difference([after[uid] for uid in before], list(before.values()))
    return {
        "accuracy_rise": mean(list(accuracies[-EDGE:])) - mean(list(accuracies[:EDGE])),
        "attempts_rise": rise.mean,
        "attempts_rise_low": rise.low,
    }


def failures(numbers: Mapping[str, float], bounds: Mapping[str, Bound]) -> list[str]:
    """Return the names of the numbers that are out of their bounds or missing."""
    return [
        name for name, own in bounds.items() if name not in numbers or not own.allows(numbers[name])
    ]


def share(part: float, whole: float) -> float:
    """Return a share; 0 of nothing."""
    return part / whole if whole else 0.0


def check_traces(source: PrimingDocuments, num: int = 200) -> None:
    """Refuse traces that do not read as clean.

    Raises:
        ValueError: with the first such trace.
    """
    for own in islice(source.traces(len), num):
        text = f"{own.own}{own.ending}"
        if not read(text, own.numbers, own.target, own.start, source.arm).is_clean:
            raise ValueError(
                f"documents: arm {source.arm!r} has a trace in a wrong format: {text!r}"
            )


def check_limit(problems: Sequence[Problem], limit: int, num_tokens: Count, key: str) -> None:
    """Refuse a limit at which an author could not write a problem's whole search.

    Raises:
        ValueError: naming the key, the limit, and what the longest search needs.
    """
    longest = 0
    for problem in problems:
        search, needed = places(tuple(problem.meta["numbers"])), problem.meta["attempts"]
        text = f"{written(search, 0, needed)}. {answered(search[needed - 1])}"
        longest = max(longest, num_tokens(text) + 1)
    if longest > limit:
        raise ValueError(
            f"{key}: {limit} is too short: the longest search of these problems has"
            f" {longest} tokens; set at least {longest}, or leave out long problems by max_attempts"
        )


def read_run(path: Path) -> dict[str, list[tuple[Reading, bool]]]:
    """Return the responses of an evaluation by problem, from its ``responses.jsonl``."""
    found: dict[str, list[tuple[Reading, bool]]] = {}
    for row in read_records(path):
        found.setdefault(row["uid"], []).append((reading_of(row), row["status"] == "right"))
    return found


def accuracies_of(path: Path) -> list[float]:
    """Return the accuracy of each training rollout of a run, from its ``responses.jsonl``."""
    rows: dict[int, list[float]] = {}
    for row in read_records(path):
        if row["split"] == "train":
            rows.setdefault(row["iteration"], []).append(float(row["status"] == "right"))
    return [mean(rows[i]) for i in sorted(rows)]


def attempts_of(rows: Sequence[Record]) -> dict[str, float]:
    """Return the mean attempts of the responses to each problem, by uid."""
    return means_by_problem(rows, lambda row: reading_of(row).attempts)


def is_hard(uid: str) -> bool:
    """Return whether the claims are about a problem: it needs six attempts or more."""
    return int(uid.rpartition("-")[2]) >= LEAST


def reading_of(row: Record) -> Reading:
    """Return the reading of a recorded response; its problem's uid holds numbers and target."""
    _, _, *numbers, target, _, _ = row["uid"].split("-")  # real-aha-3-4-9-63-at-3
    return read(row["response"], [int(n) for n in numbers], int(target))


def run(folder: Path, command: str, config: str, changes: Record, done: str) -> None:
    """Run a command of r1lit unless ``done`` is there; an interrupted fit continues.

    Raises:
        ValueError: if it failed, with where its log is.
    """
    if (folder / done).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    overlay = folder / "pilot.yaml"
    overlay.write_text(yaml.safe_dump(changes))
    arguments = [command, "-c", str(HERE / config), "-c", str(overlay)]
    if command == "fit":  # goes on where it was interrupted; else begins
        arguments += ["--ckpt_path", "last"]
    log = folder / "log.txt"
    status = in_subprocess(arguments, log)
    if status:
        raise ValueError(f"{folder}: {error_in(log, status)}; its log is {log}")


def evaluated(name: str, model: Record) -> dict[str, list[tuple[Reading, bool]]]:
    """Evaluate the primed policy; return its responses as read."""
    folder = RUNS / name
    changes = {"policy": f"{RUNS}/prime/policy", "dirpath": str(folder), **model}
    run(folder, "test", "evaluate.yaml", {"model": {"init_args": changes}}, "report.json")
    return read_run(folder / "responses.jsonl")


def measure_1(model: str) -> dict[str, float]:
    """Prime the search arm and return the numbers of gate 1."""
    documents = [
        {
            "class_path": "experiments.real_aha.traces.PrimingDocuments",
            "init_args": {"arm": "search", "tokenizer": model, **more},
        }
        for more in ({}, {"split": "held_out", "num_tokens": 10_000})
    ]
    changes = {
        "run": str(RUNS / "prime"),
        "model": {"init_args": {"policy": {"path": model}}},
        "data": {"init_args": {"documents": documents[:1], "validation_documents": documents[1:]}},
    }
    run(RUNS / "prime", "fit", "prime.yaml", changes, "policy")
    return gate_1(evaluated("free", {}))


def measure_2(model: str) -> dict[str, float]:
    """Return the numbers of gate 2, with the token banned that begins giving up."""
    ban = {
        "class_path": "experiments.earned_length.bans.Banning",
        "init_args": {"words": [GIVE_UP]},
    }
    free, banned = (
        gate_1(evaluated(name, more))["pass@1"]
        for name, more in (("free", {}), ("banned", {"engine": ban}))
    )
    return gate_2(free, banned)


def measure_3(model: str) -> dict[str, float]:
    """Return the numbers of gate 3, of the learning rate at which accuracy rose most."""
    found = []
    for rate in RATES:
        folder = RUNS / f"rl-{rate:g}"
        changes = {
            "run": str(folder),
            "model": {
                "init_args": {
                    "policy": {"path": f"{RUNS}/prime/policy"},
                    "optimizer": {"init_args": {"lr": rate}},
                }
            },
            "data": {"init_args": {"num_iterations": ITERATIONS}},
            "trainer": {"val_check_interval": ITERATIONS},  # and before the first
        }
        run(folder, "fit", "rl.yaml", changes, "policy")
        evaluated = evaluated_in(folder)
        before, after = (attempts_of(evaluated[i]) for i in (min(evaluated), max(evaluated)))
        numbers = gate_3(accuracies_of(folder / "responses.jsonl"), before, after)
        found.append({"lr": rate, **numbers})
    passing = [own for own in found if not failures(own, GATE_3)]
    best = max(passing or found, key=lambda own: own["accuracy_rise"])
    others = {f"{name} at {own['lr']:g}": own[name] for own in found for name in GATE_3}
    return {**best, **others}


GATES = {1: (measure_1, GATE_1), 2: (measure_2, GATE_2), 3: (measure_3, GATE_3)}


def check_machine(is_fast: bool, slow: bool) -> None:
    """Refuse a CPU without bfloat16 instructions, unless that is wanted.

    Raises:
        ValueError: with the hours that it would take.
    """
    if not is_fast and not slow:
        raise ValueError(
            "this CPU has no bfloat16 instructions: the pilot would take several hours and not"
            " one; run it elsewhere, or give --slow"
        )


def as_table(rows: Sequence[Record]) -> str:
    """Return the gates' numbers as a Markdown table."""
    cells = [
        [str(row["gate"]), name, f"{value:.3f}", "failed" if name in row["failed"] else "passed"]
        for row in rows
        for name, value in row["numbers"].items()
        if name in GATES[row["gate"]][1]
    ]
    return as_markdown(["gate", "number", "value", ""], cells, num_text=2)


@reported("experiments.real_aha.pilot")
def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status: 1 if a gate failed."""
    parser = command_line("experiments.real_aha.pilot", __doc__)
    parser.add_argument("--model", default=MODEL, help="the folder of the model")
    parser.add_argument("--slow", action="store_true", help="run without bfloat16, for hours")
    options = parser.parse_args(arguments)
    check_machine(has_fast_bfloat16(), options.slow)
    tokenizer = load_tokenizer(options.model)
    prompt_text(tokenizer, CHAT, wording((3, 4, 9), 63))
    num_tokens = counted_by(tokenizer)
    check_traces(PrimingDocuments())
    first = Searches("train", 240, max_attempts=11).problems()
    check_limit(first, 256, num_tokens, "model.sampling.max_tokens")
    check_limit(Searches("held_out", 48).problems(), 512, num_tokens, "model.sampling.max_tokens")
    path = RUNS / "pilot.jsonl"
    rows: list[Record] = []
    for gate, (measure, bounds) in GATES.items():
        numbers = measure(options.model)
        rows.append({"gate": gate, "numbers": numbers, "failed": failures(numbers, bounds)})
        write_records(path, rows)
        if rows[-1]["failed"]:
            break
    print(as_table(rows))
    if not rows[-1]["failed"]:
        return 0
    gate = rows[-1]["gate"]
    print(f"gate {gate} failed by {', '.join(rows[-1]['failed'])}: {MEND[gate]}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
