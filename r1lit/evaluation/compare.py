"""``r1lit-compare``: the difference of two evaluations of the same problems.

    r1lit-compare runs/eval/a runs/eval/b
    r1lit-compare runs/aha                  # its last evaluation less its first
    r1lit-compare runs/aha@90 runs/aha@30   # those at two iterations

Several seeds a side are compared over seeds (`r1lit.metrics.seeds`; needs the extra ``sweep``)::

    r1lit-compare runs/objectives/grpo runs/objectives/dapo          # folders of seed-0, seed-1, …
    r1lit-compare runs/forks/seed-*/grpo --less runs/forks/seed-*/same
    r1lit-compare runs/objectives/grpo                # each seed's last evaluation less its first

Each run is a folder of `r1lit test` or of a training run, whose last evaluation counts if none is
named; a ``responses.jsonl``; or the output of ``r1lit-score`` for lines with ``uid``. It prints A
less B: the mean difference of pass@1, its standard error and 95 % interval, and a p-value; see
`r1lit.metrics.paired_difference`. The runs must hold the same problems; the number of responses
to each may differ. Over seeds, a run is one number: the interval is Student's t, paired where both
sides have the same seeds, which the last ``seed-<n>`` of a path names, and Welch's where not.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from statistics import pvariance
from typing import TYPE_CHECKING

from r1lit.console import run_script
from r1lit.evaluation.records import Which, by_problem, read_evaluation
from r1lit.files import JSONLFile, absent, defined, replace_json
from r1lit.metrics import Difference, mean, paired_difference

if TYPE_CHECKING:  # scipy takes a second to import, and may be absent
    from r1lit.metrics.seeds import Shift

SEED = re.compile(r"seed-(\d+)(?![^/])")


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
        raise ValueError(
            f"run: {path} holds no responses of an evaluation; a training run writes them where it"
            f" has data.validation, and `r1lit test` with --model.policy {path.parent / 'policy'}"
        )
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


@dataclass(frozen=True)
class Evaluated:
    """A run, and which of its evaluations."""

    path: Path
    which: Which = "last"


def seeds_in(run: Evaluated) -> list[Evaluated]:
    """Return the runs of a folder of ``seed-<n>`` folders, by number; any other run alone.

    >>> seeds_in(Evaluated(Path("absent")))
    [Evaluated(path=PosixPath('absent'), which='last')]
    """
    if not run.path.is_dir() or (run.path / "responses.jsonl").is_file():
        return [run]
    folders = [path for path in run.path.glob("seed-*") if SEED.fullmatch(path.name)]
    folders.sort(key=lambda path: int(path.name.removeprefix("seed-")))
    return [Evaluated(path, run.which) for path in folders] or [run]


def pass_at_1_by_seed(runs: Sequence[Evaluated], side: str) -> tuple[dict[int, float], set[str]]:
    """Return pass@1 of each run by its seed, and the problems; ``side`` is A or B.

    Runs whose paths name no seed, or the same one twice, get numbers below 0 that no run of the
    other side has, so that nothing is paired.

    Raises:
        ValueError: if the runs do not all hold the same problems.
    """
    shares = [shares_right(run.path, run.which) for run in runs]
    for run, own in zip(runs, shares, strict=True):
        if own.keys() != shares[0].keys():
            raise ValueError(
                f"run: {run.path} and {runs[0].path} hold other problems, {len(own)} and"
                f" {len(shares[0])}; compare runs of the same problems"
            )
    named = [SEED.findall(run.path.as_posix()) for run in runs]
    seeds = [int(found[-1]) for found in named if found]
    if len(set(seeds)) < len(runs):
        seeds = [-2 * i - (1 if side == "A" else 2) for i in range(len(runs))]
    values = (mean(list(own.values())) for own in shares)
    return dict(zip(seeds, values, strict=True)), set(shares[0])


def compare_seeds(ours: Sequence[Evaluated], others: Sequence[Evaluated]) -> Shift:
    """Return the difference over seeds of several runs' pass@1.

    Raises:
        ValueError: if scipy is missing, problems differ, or there are too few runs on a side.
    """
    if not find_spec("scipy"):
        raise ValueError(
            "scipy: not installed, and compares several seeds; pip install 'r1lit[sweep]'"
        )
    from r1lit.metrics.seeds import shift_over_seeds

    (ours_S, problems), (others_S, same) = (
        pass_at_1_by_seed(side, name) for side, name in ((ours, "A"), (others, "B"))
    )
    if problems != same:
        missing = sorted(problems ^ same)
        raise ValueError(
            f"run: {ours[0].path} and {others[0].path} differ in {len(missing)} problems, the first"
            f" {missing[0]!r}; compare runs of the same problems"
        )
    shift = shift_over_seeds(ours_S, others_S)
    if shift is None:
        raise ValueError(
            f"runs: {len(ours)} and {len(others)} are too few to compare over seeds; give two seeds"
            " that both sides have, or two runs on each side"
        )
    return shift


def as_lines(shift: Shift, ours: str, others: str) -> str:
    """Return a difference over seeds as lines, with what so many seeds can tell."""
    rule = "paired by seed" if shift.is_paired else "seeds not paired, Welch"
    more = shift.seeds_to_settle()
    settled = {0: "p is below 0.05 already", None: "over 1,000 more seeds would settle it"}.get(
        more, f"{more} more seeds would settle it in 80 of 100 studies, if it is the true one"
    )
    return (
        f"pass@1 of {ours} less {others}, {shift.num_seeds} seeds ({rule}):"
        f" {100 * shift.mean:+.2f} points\n"
        f"standard error {100 * shift.stderr:.2f}, 95 % interval {100 * shift.low:+.2f} to"
        f" {100 * shift.high:+.2f} (Student's t over seeds)\n"
        f"p = {shift.p_value:.4g}; the sign is wrong with probability"
        f" {shift.p_wrong_sign:.2g} (flat prior)\n"
        f"so many seeds see a difference of {100 * shift.detectable():.2f} points in 80 of 100"
        f" studies; {settled}"
    )


def _keys(path: Path) -> set[str]:
    return set(next(iter(JSONLFile(path, "run").read()), {}))


def _named(run: str) -> Evaluated:
    """Return the run and the evaluation of ``path`` or ``path@iteration``."""
    path, _, iteration = run.rpartition("@")
    if iteration.isdecimal() and path and not Path(run).exists():
        return Evaluated(Path(path), int(iteration))
    return Evaluated(Path(run))


def _sides(runs: Sequence[str], less: Sequence[str] | None) -> tuple[list[Evaluated], ...]:
    """Return the runs of both sides, with folders of seeds expanded.

    Raises:
        ValueError: if it is not said which runs are compared with which.
    """
    if less is None and len(runs) > 2:
        raise ValueError(f"runs: {len(runs)} are given; name those of the other side after --less")
    names = [runs, less] if less is not None else [[run] for run in runs]
    sides = [[one for run in side for one in seeds_in(_named(run))] for side in names]
    if len(sides) == 1:
        sides.append([replace(run, which="first") for run in sides[0]])
    return tuple(sides)


def _listed(runs: Sequence[str]) -> str:
    return " … ".join([runs[0], runs[-1]] if len(runs) > 1 else runs)


def main(args: Sequence[str] | None = None) -> Difference | Shift:
    """Run the command; ``args`` is ``sys.argv[1:]`` if left out."""
    parser = argparse.ArgumentParser(
        prog="r1lit-compare", description="Compare two evaluations of the same problems."
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN[@ITERATION]",
        help="A, then B; B is the first evaluation of A if left out; folders of seed-<n> are seeds",
    )
    parser.add_argument(
        "--less", nargs="+", metavar="RUN[@ITERATION]", help="the runs of B; those before are A's"
    )
    parser.add_argument("--seed", type=int, default=0, help="of bootstrap and permutation")
    parser.add_argument("--output", type=Path, default=None, metavar="OUT.json")
    given = parser.parse_args(args)
    ours, others = _sides(given.runs, given.less)
    name = _listed(given.runs if given.less else given.runs[:1])
    less = _listed(given.less or given.runs[1:]) or f"{name}'s first evaluation"
    if len(ours) > 1 or len(others) > 1:
        shift = compare_seeds(ours, others)
        print(as_lines(shift, name, less))
        if given.output is not None:
            told = {"low": shift.low, "high": shift.high, "p_value": shift.p_value,
                    "p_wrong_sign": shift.p_wrong_sign, "detectable": shift.detectable(),
                    "more_seeds": shift.seeds_to_settle()}  # fmt: skip
            replace_json(given.output, defined(asdict(shift) | told))
        return shift
    return _compare_problems(ours[0], others[0], (name, less), given)


def _compare_problems(
    ours: Evaluated, other: Evaluated, names: tuple[str, str], given: argparse.Namespace
) -> Difference:
    """Print, and write if asked to, the difference of two runs over problems."""
    which = ours.which, other.which
    result = compare_runs(ours.path, other.path, seed=given.seed, which=which)
    print(
        f"pass@1 of {names[0]} less {names[1]}, {result.num_problems} problems:"
        f" {100 * result.mean:+.2f} points\n"
        f"standard error {100 * result.stderr:.2f}, 95 % interval {100 * result.low:+.2f} to"
        f" {100 * result.high:+.2f} (bootstrap over problems)\n"
        f"p = {result.p_value:.4g} (paired permutation, two-sided); {result.better} problems"
        f" better, {result.worse} worse"
    )
    samples = paired_samples(ours.path, other.path, which)
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
