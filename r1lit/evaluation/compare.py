"""``r1lit-compare``: the difference of two evaluations of the same problems.

    r1lit-compare runs/eval/a runs/eval/b
    r1lit-compare runs/aha                  # its last evaluation less its first
    r1lit-compare runs/aha@90 runs/aha@30   # those at two iterations

Each run is a folder of `r1lit test` or of a training run, whose last evaluation counts if none is
named; a ``responses.jsonl``; or the output of ``r1lit-score`` for lines with ``uid``. It prints A
less B: the mean difference of pass@1, its standard error and 95 % interval, and a p-value; see
`r1lit.metrics.paired_difference`. The runs must hold the same problems; the number of responses
to each may differ.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from statistics import pvariance

from r1lit.console import run_script
from r1lit.evaluation.records import Which, by_problem, read_evaluation
from r1lit.files import JSONLFile, absent, defined, replace_json
from r1lit.metrics import Difference, mean, paired_difference


def shares_right(run: Path, which: Which = "last") -> dict[str, float]:
    """Return the share of right responses by problem, of the samples that its report counts.

    ``which``: the evaluation, of a training run.

    Raises:
        ValueError: if there are none, or a line lacks ``uid`` or ``value``.
    """
    path = run / "responses.jsonl" if run.is_dir() else run
    if not path.is_file():
        raise ValueError(f"run: {absent(path)}; `r1lit test` writes one")
    records = read_evaluation(path, which=which)
    report = path.with_name("report.json")
    if path.name == "responses.jsonl" and report.is_file():
        num_samples = json.loads(report.read_text())["num_samples"]
        records = list(chain.from_iterable(by_problem(records, num_samples).values()))
    right: dict[str, list[float]] = {}
    for record in records:
        for key in ("uid", "value"):
            if key not in record or record["uid"] is None:
                raise ValueError(f"run: {path}: key {key!r} is missing in {str(record)[:80]}")
        if record["value"] is not None:  # a line that r1lit-score skipped
            uid = str(record.get("problem", record["uid"]))
            right.setdefault(uid, []).append(float(record["value"]) == 1.0)
    if not right:
        raise ValueError(f"run: {path} holds no responses of an evaluation")
    return {uid: mean(own) for uid, own in right.items()}


def compare_runs(
    a: Path, b: Path, *, seed: int = 0, which: tuple[Which, Which] = ("last", "last")
) -> Difference:
    """Return run A less run B over the problems that both hold; ``which`` evaluation of each.

    Raises:
        ValueError: if a problem of one run is missing in the other.
    """
    shares_a, shares_b = shares_right(a, which[0]), shares_right(b, which[1])
    for here, there, name in ((shares_a, shares_b, b), (shares_b, shares_a, a)):
        missing = [uid for uid in here if uid not in there]
        if missing:
            raise ValueError(
                f"run: {name} lacks {len(missing)} of the other's {len(here)} problems, the first"
                f" {missing[0]!r}; compare runs of the same problems"
            )
    uids = sorted(shares_a)
    return paired_difference(
        [shares_a[uid] for uid in uids], [shares_b[uid] for uid in uids], seed=seed
    )


def paired_samples(
    a: Path, b: Path, which: tuple[Which, Which] = ("last", "last")
) -> dict[str, float]:
    """Return how far two runs' samples go together: branches of one run sample alike.

    ``same`` is the share of (problem, sample) with the same verdict in both; ``variance_ratio`` the
    variance of the mean difference over samples, by that of samples that have nothing in common:
    sum over problems of Var(a - b) / (sum of Var(a) + Var(b)). 1: pairing saves nothing. NaN where
    no verdict varies.

    Returns:
        Both, and ``num_pairs``; nothing if the runs do not have the same samples.
    """
    sides = []
    for run, at in ((a, which[0]), (b, which[1])):
        path = run / "responses.jsonl" if run.is_dir() else run
        records = by_problem(read_evaluation(path, which=at)) if "sample" in _keys(path) else {}
        sides.append(
            {uid: [float(r["value"] or 0) == 1.0 for r in own] for uid, own in records.items()}
        )
    if not sides[0] or {u: len(x) for u, x in sides[0].items()} != {
        u: len(x) for u, x in sides[1].items()
    }:
        return {}
    pairs = {uid: list(zip(own, sides[1][uid], strict=True)) for uid, own in sides[0].items()}
    paired = sum(pvariance([x - y for x, y in own]) for own in pairs.values())
    alone = sum(
        pvariance([float(x) for x, _ in own]) + pvariance([float(y) for _, y in own])
        for own in pairs.values()
    )
    flat = [x == y for own in pairs.values() for x, y in own]
    return {
        "num_pairs": float(len(flat)),
        "same": mean([float(x) for x in flat]),
        "variance_ratio": paired / alone if alone else math.nan,
    }


def _keys(path: Path) -> set[str]:
    return set(next(iter(JSONLFile(path, "run").read()), {}))


def _named(run: str) -> tuple[Path, Which]:
    """Return the path and the evaluation of ``path`` or ``path@iteration``."""
    path, _, iteration = run.rpartition("@")
    if iteration.isdecimal() and path and not Path(run).exists():
        return Path(path), int(iteration)
    return Path(run), "last"


def main(args: Sequence[str] | None = None) -> Difference:
    """Run the command; ``args`` is ``sys.argv[1:]`` if left out."""
    parser = argparse.ArgumentParser(
        prog="r1lit-compare", description="Compare two evaluations of the same problems."
    )
    parser.add_argument("a", metavar="RUN_A[@ITERATION]")
    parser.add_argument(
        "b",
        nargs="?",
        metavar="RUN_B[@ITERATION]",
        help="the first evaluation of RUN_A if left out",
    )
    parser.add_argument("--seed", type=int, default=0, help="of bootstrap and permutation")
    parser.add_argument("--output", type=Path, default=None, metavar="OUT.json")
    given = parser.parse_args(args)
    a, which_a = _named(given.a)
    b, which_b = (a, "first") if given.b is None else _named(given.b)
    result = compare_runs(a, b, seed=given.seed, which=(which_a, which_b))
    less = f"{a}'s first evaluation" if given.b is None else given.b
    print(
        f"pass@1 of {given.a} less {less}, {result.num_problems} problems:"
        f" {100 * result.mean:+.2f} points\n"
        f"standard error {100 * result.stderr:.2f}, 95 % interval {100 * result.low:+.2f} to"
        f" {100 * result.high:+.2f} (bootstrap over problems)\n"
        f"p = {result.p_value:.4g} (paired permutation, two-sided); {result.better} problems"
        f" better, {result.worse} worse"
    )
    samples = paired_samples(a, b, (which_a, which_b))
    if samples:
        same, ratio = samples["same"], samples["variance_ratio"]
        print(
            f"by sample: {same:.1%} of {samples['num_pairs']:.0f} verdicts are the same; sampling"
            f" variance {ratio:.2f} of that of independent samples"
        )
    if given.output is not None:
        whole = asdict(result) | ({"samples": samples} if samples else {})
        replace_json(given.output, defined(whole))
    return result


def run() -> None:
    """Run the console script."""
    run_script("r1lit-compare", main)


if __name__ == "__main__":
    run()
