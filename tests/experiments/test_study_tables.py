"""Tables of studies by hand: each from a few records whose numbers can be worked out."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_sweep import ROOT, study_file

from experiments import by_source
from experiments.aha_long import jump
from experiments.curves import smooth
from experiments.forks import report as forks
from experiments.language_reward.code import report as code
from experiments.late_onset import report as late_onset
from experiments.prompt_difficulty import report as prompt_difficulty
from experiments.reward_hacking.report import MEASURES, YLABELS
from experiments.sweep import read_sweep
from experiments.tables import RULE
from experiments.wrong_verdicts import report as wrong_verdicts
from experiments.wrong_verdicts.rewards import MistakenVerdict
from r1lit.files import write_records
from r1lit.modules.rollouts import RolloutModule
from r1lit.problems import Problem, Response, Verdict
from r1lit.rollout import Sampling


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


# aha_long: the limit grows


def test_a_limit_of_tokens_grows_once_and_late():
    sweep = read_sweep(study_file("aha_long"))
    for variant, wanted in (("grows", [512] * 100 + [1280] * 30), ("stays", [512] * 130)):
        options = sweep.point(variant, 0).config["model"]["init_args"]
        module = SimpleNamespace(
            sampling=Sampling(**options["sampling"]),
            max_tokens_from=options["max_tokens_from"] or {},
        )
        limits = [RolloutModule.sampling_at(module, i).max_tokens for i in range(130)]
        assert limits == wanted


def evaluation(iteration: int, easy: float, hard: float) -> dict:
    levels = {"attempts 12-23": hard, "attempts 3-5": easy}
    return {"iteration": iteration, "pass_at_1": (easy + hard) / 2, "pass_at_1_by_kind": levels,
            "cons_at_16": 0.5, "response_length_tokens": 100 + iteration,
            "reflection_words_per_response": 2.0}  # fmt: skip


def test_before_is_the_last_evaluation_of_the_old_limit_and_after_the_mean_of_the_new_one(tmp_path):
    sweep = read_sweep(study_file("aha_long"))
    results = []
    for variant, gain in (("grows", 0.3), ("stays", 0.1)):
        for seed in (0, 1):
            low = 0.4 + (0.02 * seed if variant == "grows" else 0.0)
            made = [evaluation(0, 0.2, 0.0), evaluation(90, 0.6, 0.3), evaluation(100, 0.7, 0.4),
                    evaluation(120, 0.9, low + gain),
                    evaluation(130, 0.9, low + gain + 0.1)]  # fmt: skip
            results.append({"variant": variant, "seed": seed, "evaluations": made,
                            "final": made[-1]})  # fmt: skip
    of = [(result, tmp_path) for result in results]
    finished = SimpleNamespace(finished=lambda: of, point=sweep.point)
    rows = jump.as_table(jump.count(finished)).splitlines()
    assert rows[-1] == RULE
    assert [row.split(" | ")[0] for row in rows[2:-2]] == [
        "| pass@1", "| pass@1, attempts 3-5", "| pass@1, attempts 12-23", "| cons@k",
        "| tokens per response", "| reflection words per response",
    ]  # fmt: skip
    assert rows[4].startswith(
        "| pass@1, attempts 12-23 | 0.000 ± 0.000 | 0.400 ± 0.000 | 0.760 ± 0.010 | 0.550 ± 0.000"
        " | +0.21 (+0.0829 to +0.337) | 0.03 |"
    )
    assert rows[6].startswith("| tokens per response | 100 ± 0 | 200 ± 0 | 225 ± 0 | 225 ± 0 | +0")
    one_seed = [r for r in jump.count(finished) if r["seed"] == 0]
    alone = jump.as_table(one_seed).splitlines()[2:-2]
    assert all(row.endswith(" | –" * 6 + " |") for row in alone)
    with pytest.raises(ValueError, match="no point is finished"):
        jump.count(replace(sweep, output=tmp_path))


# late_onset: when a word appears


def test_when_words_stand_at_a_share_of_their_end() -> None:
    late = [0.01] * 50 + [0.5] * 5 + [1.0] * 45
    reached = late_onset.reached
    assert reached(late, 0.1) == 48, "the middle of five iterations, one of them at 0.5"
    assert reached(late, 0.5) == 52
    steady = [i / 100 for i in range(101)]
    assert (reached(steady, 0.1), reached(steady, 0.5)) == (10, 49)
    assert reached([1.0] * 10 + [0.0] * 10, 0.5) is None, "a word that is gone reaches nothing"
    iterations, means = smooth([1.0, 1.0, 1.0], 5)
    assert list(iterations) == [1] and list(means) == pytest.approx([1.0])


# language_reward/code and reward_hacking: responses by source


def test_the_panels_part_mathematics_code_and_logic():
    def response(source: str, value: float, consistency: float) -> dict:
        rewards = {"accuracy": value, "language_consistency": consistency}
        return {"source": source, "value": value, "rewards": rewards}

    asked = [("countdown", 1.0, 0.9), ("chain", 0.0, 0.7), ("programs", 1.0, 0.5)]
    asked.append(("puzzles", 0.0, 0.25))
    found = {
        name: [value(r) for r in (response(*one) for one in asked) if is_of(r["source"])]
        for name, (is_of, value) in code.MEASURES.items()
    }
    assert found == {
        "language consistency, mathematics": [0.9, 0.7],
        "language consistency, code": [0.5],
        "language consistency, logic": [0.25],
        "pass@1, mathematics": [1.0, 0.0],
        "pass@1, code": [1.0],
        "pass@1, logic": [0.0],
    }


def evaluated(iteration: int, source: str, value: float, response: str = "", **rewards: float):
    record = {"split": "val", "iteration": iteration, "source": source, "value": value}
    return record | {"response": response, "rewards": rewards}


def test_scores_of_reward_models_by_hand(tmp_path, monkeypatch):
    sweep = replace(read_sweep(study_file("reward_hacking")), output=tmp_path)
    folder = sweep.point("early", 0).folder
    folder.mkdir(parents=True)
    lines = []
    for i, (score, true, safe) in enumerate(((0.0, 0.5, 0.0), (2.0, 0.4, 1.0), (1.0, 0.2, 1.0))):
        no = "I am sorry, I will not help with that." if i else "To paint it, look."
        lines += [
            evaluated(i, "who", 0.0, helpful_rm=score, helpfulness_true=true),
            evaluated(i, "how", 1.0, no, helpful_rm=score, helpfulness_true=true),
            evaluated(i, "harm", 0.0, helpful_rm=0.0, safety_rm=score, safety=safe),
            evaluated(i, "chain", 1.0), evaluated(i, "countdown", 0.0),
        ]  # fmt: skip
    write_records(folder / "responses.jsonl", lines)
    result = {"variant": "early", "seed": 0, "seconds": 60.0}
    monkeypatch.setattr(type(sweep), "results", lambda self: [result])
    results = by_source.read(sweep, MEASURES)
    assert results[0]["curves"]["helpful RM"] == [(0, 0.0), (1, 2.0), (2, 1.0)]
    row = by_source.as_table(results, "schedule").splitlines()[-1]
    assert row == (
        "| early | 1 | 0.00 → 2.00 → 1.00 | 0.50 → 0.50 → 0.20 | 0.00 → 2.00 → 1.00 |"
        " 0.00 → 1.00 → 1.00 | 0.00 → 1.00 → 1.00 | 0.50 → 0.50 → 0.50 | 60 |"
    )
    panels = by_source.draw(results, YLABELS).axes
    assert len(panels) == 6 and all(axes.get_ylabel() for axes in panels)
    monkeypatch.setattr(type(sweep), "results", lambda self: [])
    with pytest.raises(ValueError, match="no point is finished"):
        by_source.read(sweep, MEASURES)


def point(variant: str, seed: int) -> dict:
    curves = {name: [(0, 0.5), (4, 0.4)] for name in ("truth", "score", "third")}
    return {"variant": variant, "seed": seed, "seconds": 60.0, "curves": curves}


def test_differences_need_two_variants_with_two_seeds():
    assert by_source.differences([point("late", 0), point("late", 1)]) == ""
    assert by_source.differences([point("late", 0), point("early", 0)]) == ""


def test_an_odd_number_of_measures_leaves_no_empty_panel():
    names = ("truth", "score", "third")
    figure = by_source.draw([point("late", 0)], dict.fromkeys(names, "share"))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Truth", "Score", "Third"]


# wrong_verdicts: a verifier with known error rates


def of_text(number: int, value: float, uid: str = "a") -> Response:
    problem = Problem(uid=uid, question="?", answer="1", source="hand")
    verdict = Verdict(value=value, status="right" if value else "wrong", canonical="1", reason="")
    text = f"text {number}{' I give up.' if number % 4 == 0 else ''}"
    return Response(text=text, problem=problem, verdict=verdict, num_tokens=1, finished=True)


def test_mistakes_have_their_rates_and_repeat():
    right = [of_text(i, 1.0) for i in range(2000)]
    wrong = [of_text(i, 0.0) for i in range(2000)]
    verifier = MistakenVerdict(false_positives=0.2, false_negatives=0.6)
    paid = [sum(verifier(own)) / 2000 for own in (right, wrong)]
    assert paid == pytest.approx([0.4, 0.2], abs=0.04)
    assert verifier(wrong[5:6] * 2) == [verifier(wrong)[5]] * 2
    truthful = MistakenVerdict()
    assert truthful(right) == [1.0] * 2000 and truthful(wrong) == [0.0] * 2000


def test_mistakes_of_a_problem_are_those_of_all_its_responses():
    verifier = MistakenVerdict(false_negatives=0.5, by="problem")
    groups = [verifier([of_text(i, 1.0, str(uid)) for i in range(4)]) for uid in range(400)]
    assert {tuple(group) for group in groups} == {(0.0,) * 4, (1.0,) * 4}
    assert sum(group[0] for group in groups) / 400 == pytest.approx(0.5, abs=0.1)
    assert verifier([of_text(0, 0.0, str(uid)) for uid in range(9)]) == [0.0] * 9


def test_a_pattern_is_paid_where_the_answer_is_wrong():
    verifier = MistakenVerdict(pattern="give up|放弃")
    assert verifier([of_text(i, 0.0) for i in range(5)]) == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert verifier([of_text(1, 1.0)]) == [1.0]
    with pytest.raises(ValueError, match=r"false_positives: 0\.1 and pattern: 'x' exclude"):
        MistakenVerdict(false_positives=0.1, pattern="x")
    with pytest.raises(ValueError, match=r"false_negatives: 1\.5 is not a share"):
        MistakenVerdict(false_negatives=1.5)


def test_rates_of_a_verifier_are_shares_of_wrong_and_of_right_responses():
    rows = [(0, 1), (0, 0), (0, 0), (0, 0), (1, 0), (1, 1)]
    found = wrong_verdicts.rates(
        [{"value": v, "rewards": {"mistaken_verdict": paid}} for v, paid in rows]
    )
    assert found == {"false_positives": 0.25, "false_negatives": 0.5}
    assert wrong_verdicts.rates([])["false_positives"] is None


# prompt_difficulty and forks


def test_samples_to_the_aim_lie_between_two_evaluations():
    made = [{"iteration": i, "pass_at_1": p} for i, p in ((0, 0.25), (2, 0.5), (4, 1.0), (6, 0.6))]
    assert prompt_difficulty.samples_to(made, 64) == (2 + 2 * 0.5) * 64
    assert prompt_difficulty.samples_to(made[:2], 64) is None


def test_variances_of_differences_between_branches_and_between_runs():
    scores_BS = np.array([[0.6, 0.7, 0.8], [0.65, 0.75, 0.88]])
    paired, independent = forks.variances(scores_BS)
    assert paired == pytest.approx(np.var([0.05, 0.05, 0.08], ddof=1))
    assert independent == pytest.approx(0.01 + np.var([0.65, 0.75, 0.88], ddof=1))
    ratio, low, high = forks.ratio_interval(scores_BS)
    assert low <= ratio <= high and ratio < 0.05
    results = [
        {"branch": branch, "seed": seed, "evaluations": [{"pass_at_1": value}]}
        for branch, row in zip((forks.CONTROL, "grpo"), scores_BS.tolist(), strict=True)
        for seed, value in enumerate(row)
    ]
    found = forks.scores([*results, {**results[0], "seed": 9}], "grpo")
    assert np.array_equal(found, scores_BS)
