"""How often few seeds name the wrong winner: simulated seeds whose truth is known, and known rows.

That its steps are valid configurations is tested here too; the study has not run yet.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats
from tiny_sweep import ROOT, study_file

from experiments.__main__ import main
from experiments.compose import merge
from experiments.pipeline import read_pipeline
from experiments.seeds_needed.draws import Design, interval, shares
from experiments.seeds_needed.report import ARMS, designs, read, report
from experiments.study import read_study
from r1lit.files import Record, read_records

SD = 0.05


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def records(**scores: np.ndarray) -> list[Record]:
    return [
        {"arm": arm, "seed": seed, "evaluations": [{"pass_at_1": 0.25}, {"pass_at_1": value}]}
        for arm, of in scores.items()
        for seed, value in enumerate(of.tolist())
    ]


def simulated(num_seeds: int, gain: float) -> list[Record]:
    """Normal arms with just this gain and ``SD``; correlations are 0, of the forks 0.9."""
    random = np.random.default_rng(0)
    basis_S4 = np.linalg.qr(
        np.column_stack([np.ones(num_seeds), *random.normal(size=(3, num_seeds))])
    )[0]
    control, whole, own = SD * (num_seeds - 1) ** 0.5 * basis_S4.T[1:]
    fork = 0.9 * control + 0.19**0.5 * own
    return records(dr_grpo=0.7 + control, grpo=0.7 + gain + whole, grpo_fork=0.7 + gain + fork)


def committed() -> list[Record]:
    """Five seeds of whole runs and six of forks, of the studies that have run."""
    parts = (
        ("objectives", "variant", {"dr-grpo": "dr_grpo", "grpo": "grpo"}),
        ("forks", "branch", {"same": "dr_grpo", "grpo": "grpo_fork"}),
    )
    return [
        {"arm": arms[r[key]], "seed": 100 * index + r["seed"], "evaluations": r["evaluations"]}
        for index, (name, key, arms) in enumerate(parts)
        for r in read_records(ROOT / "experiments" / name / "results.jsonl")
        if r[key] in arms
    ]


def test_one_seed_a_side_by_hand():
    scores_2S = np.array([[0.5, 0.6, 0.7, 0.4], [0.6, 0.5, 0.8, 0.4]])
    same = shares(Design(scores_2S=scores_2S, is_paired=True), 1)
    assert same.wrong == pytest.approx((0 + 1 + 0 + 0.5) / 4), "a tie counts half"
    other = shares(Design(scores_2S=scores_2S, is_paired=False), 1)
    pairs = [(s, t) for s in range(4) for t in range(4) if s != t]
    gains = [np.sign(scores_2S[1, s] - scores_2S[0, t]) for s, t in pairs]
    assert other.wrong == pytest.approx(np.mean([0.5 - g / 2 for g in gains]))
    assert same.claimed is None and same.claimed_wrong is None, "one seed has no test"
    for n in (0, 3):
        with pytest.raises(ValueError, match=f"^n: {n} is not between 1 and half of the 4 seeds"):
            shares(Design(scores_2S=scores_2S, is_paired=True), n)


def test_shares_are_the_normals_and_forks_need_fewer_seeds():
    gain = 0.04
    found = designs(simulated(300, gain))
    true_sd = {"different seeds": 2**0.5 * SD, "same seeds": 2**0.5 * SD, "forks": 0.2**0.5 * SD}
    for name, design in found.items():
        for n in (1, 3):
            own = shares(design, n)
            wanted = stats.norm.sf(gain / true_sd[name] * n**0.5)
            assert own.wrong == pytest.approx(wanted, abs=0.025), (name, n)
            assert design.normal_share(n) == pytest.approx(wanted, abs=1e-6)
            assert own.low <= own.wrong <= own.high
            if n > 1:  # power by the noncentral t, two-sided
                t, z = stats.t.isf(0.025, n - 1), gain / true_sd[name] * n**0.5
                power = stats.nct.sf(t, n - 1, z) + stats.nct.cdf(-t, n - 1, z)
                if design.is_paired:  # of Welch's the degrees of freedom vary
                    assert own.claimed == pytest.approx(power, abs=0.04)
    same, forks = found["same seeds"], found["forks"]
    assert forks.shift.seeds_needed() < 0.35 * same.shift.seeds_needed()
    assert forks.seeds_for_sign() < same.seeds_for_sign()
    n = same.seeds_for_sign()
    assert same.normal_share(n) <= 0.05 < same.normal_share(n - 1)


def test_claims_without_a_difference_are_wrong_in_half():
    """p < 0.05 in one of twenty studies, and then the winner is that of a coin."""
    random = np.random.default_rng(3)
    design = Design(scores_2S=random.normal(size=(2, 300)), is_paired=True)
    own = shares(design, 5)
    assert own.claimed == pytest.approx(0.05, abs=0.01)
    assert own.claimed_wrong == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize("is_paired", [True, False])
@pytest.mark.parametrize(("n", "effect"), [(1, 1.5), (3, 0.5), (5, 1.0)])
def test_intervals_over_fifty_seeds_hold_the_true_share(n: int, effect: float, is_paired: bool):
    """Of 100 simulated studies of fifty seeds; the true share is that of the fifty's winner."""
    random, held = np.random.default_rng(7), 0
    gain = effect * 2**0.5
    for _ in range(100):
        scores_2S = random.normal([[0.0], [gain]], size=(2, 50))
        design = Design(scores_2S=scores_2S, is_paired=is_paired)
        low, high = interval(design, n, 200)
        sign = np.sign(design.shift.mean)
        held += low <= stats.norm.sf(sign * effect * n**0.5) <= high
    assert held >= 89, "95 in 100, less three standard errors"


def test_a_page_of_known_rows():
    text, figure = report(committed())
    assert "| different seeds | 1 |" in text and "| forks | 3 |" in text
    assert "| same seeds | 1 | 0.100 |" in text, "of five seeds four have GRPO first, and one a tie"
    assert "| same seeds | 3 |" not in text, "no more than half of the seeds"
    assert "| same seeds | 5 | +0.048 (-0.014 to +0.110) | 0.0499 | -0.03 |" in text
    assert "| forks | 6 | +0.048 (+0.013 to +0.082) | 0.0329 | 0.87 |" in text
    assert "Whole runs: the winner over all 5 seeds is GRPO." in text
    assert "with probability 0.048 (p / 2, flat prior)" in text
    assert "have the same winner over all seeds" in text
    assert isinstance(figure, Figure) and len(figure.axes) == 2
    assert text == report(committed())[0], "draws are the same each time"


def test_opposite_winners_are_said_and_small_shares_are_no_zeros():
    random = np.random.default_rng(5)
    control, whole, fork = random.normal([[0.7], [0.9], [0.5]], 0.02, size=(3, 12))
    text, _ = report(records(dr_grpo=control, grpo=whole, grpo_fork=fork))
    assert "Whole runs and forks have **different winners** over all seeds." in text
    assert "Forks: the winner over all 12 seeds is Dr. GRPO." in text
    rows = [line.split("wrong winner")[0] for line in text.splitlines() if "forks | " in line]
    assert len(rows) == 4 and all("| 0 | 0 to < 0.001 | < 0.001 |" in row for row in rows[:3])


def test_too_few_seeds_are_a_line():
    with pytest.raises(
        ValueError, match=r"^seeds: 1 have dr_grpo and grpo, 1 have .*grpo_fork; at"
    ):
        report([r for r in simulated(6, 0.1) if r["seed"] == 0])
    only = [r for r in simulated(6, 0.1) if r["arm"] != "grpo_fork"]
    text, _ = report(only)
    assert "| same seeds | 6 |" in text and "forks | 6" not in text
    equal = np.array([0.5, 0.6])
    text, _ = report(records(dr_grpo=equal, grpo=equal[::-1]))
    assert "the winner over all 2 seeds is neither" in text


def test_finished_runs_are_read(tmp_path):
    study = read_study(study_file("seeds_needed"), seeds=[0, 1], output=tmp_path)
    made = [{"iteration": i, "pass_at_1": p, "seconds": 1.0} for i, p in ((0, 0.25), (8, 0.75))]
    for seed, arms in ((0, ARMS), (1, ("grpo",))):
        for arm in ("half", *arms):
            (tmp_path / f"seed-{seed}" / arm / "policy").mkdir(parents=True)
            (tmp_path / f"seed-{seed}" / arm / "summary.json").write_text(json.dumps(made))
    (tmp_path / "seed-1/grpo/policy").rmdir()  # exported at the end: this run is not over
    found = read(study)
    assert [(r["arm"], r["seed"]) for r in found] == [(arm, 0) for arm in ARMS]
    assert found[0]["evaluations"][-1] == {"iteration": 8, "pass_at_1": 0.75}


def test_arms_differ_in_the_objective_and_forks_in_where_it_begins(tmp_path):
    steps = {s.name: s for s in read_pipeline(study_file("seeds_needed"), 3, tmp_path).steps}
    assert list(steps) == ["half", "dr_grpo", "grpo_fork", "grpo"]
    half, grpo = (merge({}, *steps[name].configs) for name in ("half", "grpo"))
    assert half["seed_everything"] == grpo["seed_everything"] == 3
    objectives = [c["model"]["init_args"].pop("objective") for c in (half, grpo)]
    names = [o["class_path"].rsplit(".")[-1] for o in objectives]
    assert names == ["DrGRPO", "GRPO"]
    assert all(o["init_args"]["beta"] == 0 and o["init_args"]["epsilon"] == 0.2 for o in objectives)
    num = [c["data"]["init_args"].pop("num_iterations") for c in (half, grpo)]
    assert num == [4, 8]
    assert [c.pop("run") for c in (half, grpo)] == [f"{tmp_path}/half", f"{tmp_path}/grpo"]
    assert half == grpo, "nothing else differs"
    for name in ("dr_grpo", "grpo_fork"):
        words = steps[name].arguments
        assert words[:3] == ["fork", f"{tmp_path}/half", "--at=4"]
        assert words[-1] == f"--run={tmp_path}/{name}" and str(steps[name].folder) in words[-1]
    changed = [w for w in steps["grpo_fork"].arguments if w not in steps["dr_grpo"].arguments]
    assert changed[0] == "experiments/seeds_needed/grpo.yaml"


def test_a_dry_run_says_what_would_be_made(tmp_path, capsys):
    assert read_study(study_file("seeds_needed")).seeds == list(range(50))
    assert main(["seeds_needed", "--dry-run", "--seeds=0,49", f"--output={tmp_path}/runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * 4 and all(line.startswith("new ") for line in lines)
    assert lines[-1].split()[1:] == [f"{tmp_path}/runs/seed-49", "grpo"]
    assert not list(tmp_path.iterdir())
