"""The sequential test over seeds: its errors in simulation, and the seeds that it makes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats
from tiny import ROOT

from experiments import page, sequential, until_clear
from experiments.__main__ import main
from experiments.sequential import ALPHA, FIRST, level, look, p_values_at_looks, simulate
from experiments.sweep import read_sweep


def test_p_values_at_looks_are_scipys_of_the_seeds_so_far():
    values = np.random.default_rng(0).normal(0.3, 1.0, size=(4, 7))
    found = p_values_at_looks(values)
    for row, own in zip(values, found, strict=True):
        wanted = [stats.ttest_1samp(row[:n], 0).pvalue for n in range(FIRST, 8)]
        assert own == pytest.approx(wanted)


@pytest.mark.parametrize("most", [FIRST, 6, 20])
def test_the_error_of_all_looks_together_is_five_percent(most):
    """Under other seeds than those that the level was found with; sd of 20,000 studies: 0.0015."""
    values = np.random.default_rng(11).normal(size=(20_000, most))
    assert simulate(values, level(most)).clear == pytest.approx(0.05, abs=0.006)
    if most > FIRST:
        assert simulate(values, ALPHA).clear > 0.1, "looking at 0.05 each time is not enough"
        assert ALPHA / (most - FIRST + 1) < level(most) < ALPHA


def test_the_error_of_a_family_is_five_percent():
    """Three comparisons with one control, whose differences go together."""
    random = np.random.default_rng(12)
    control, others = random.normal(size=(8000, 8)), random.normal(size=(3, 8000, 8))
    false = [p_values_at_looks(own - control) < level(8, ALPHA / 3) for own in others]
    assert np.mean(np.any(np.array(false), axis=(0, 2))) < 0.056


@pytest.mark.long
def test_the_interval_at_the_stop_holds_the_truth():
    random = np.random.default_rng(13)
    rows = random.normal(1.0, 1.0, size=(1500, 12)).tolist()
    found = [look(row, 12) for row in rows]
    assert np.mean([own.low <= 1.0 <= own.high for own in found]) > 0.94


@pytest.mark.long
def test_the_table_of_errors_is_that_of_fixed_seeds():
    text = sequential.PAGE.read_text()
    assert page.fill_in(text, sequential.as_table(), sequential.MARKS) == text


def test_a_look_stops_at_the_first_clear_seed_and_never_goes_back():
    clear = [0.50, 0.52, 0.51, -9.0, 9.0]
    found = look(clear, 20)
    assert found.is_clear and found.shift.num_seeds == 3 and found.low > 0
    assert not look([0.5, -0.5, 0.4, 0.1], 20).is_clear
    assert look([0.5, 0.5], 20) is None
    assert look([0.50, 0.52, 0.51], 3).low < 0.51 < look([0.50, 0.52, 0.51], 3).high
    with pytest.raises(ValueError, match="most: 2 seeds are too few"):
        level(2)


def training(scores):
    """Return what launches a run: it writes the evaluations that ``scores`` has of it."""
    made = []

    def launch(arguments, log):
        folder = log.parent
        variant, seed = folder.parent.name, int(folder.name.removeprefix("seed-"))
        made.append((variant, seed))
        value = scores(variant, seed)
        if value is None:
            return 1
        measured = value if isinstance(value, dict) else {"pass_at_1": value}
        evaluations = [{"iteration": i, "seconds": 1.0, **measured} for i in (0, 1)]
        (folder / "summary.json").write_text(json.dumps(evaluations))
        return 0

    return launch, made


NOISE = np.random.default_rng(5).normal(0, 0.01, size=(3, 40))
LEVELS = {"grpo": 0.5, "dr": 0.8, "null": 0.5}


def score(variant, seed):
    return LEVELS[variant] + float(NOISE[[*LEVELS].index(variant), seed])


GRID = {"one": {name: {"trainer": {"log_every_n_steps": i + 1}} for i, name in enumerate(LEVELS)}}


def test_seeds_are_made_until_each_comparison_is_settled(sweep_file, capsys):
    path = sweep_file(grid=GRID)
    launch, made = training(score)
    assert main([str(path), "--until-clear", "--most", "6"], launch) == 0
    out = capsys.readouterr().out
    assert [seed for variant, seed in made if variant == "dr"] == [0, 1, 2], "clear after three"
    assert [seed for variant, seed in made if variant == "null"] == [0, 1, 2, 3, 4, 5]
    assert [seed for variant, seed in made if variant == "grpo"] == [0, 1, 2, 3, 4, 5]
    rows = [line.split(" | ") for line in out.splitlines() if line.startswith("| ")]
    assert [(row[0], row[1], row[-1]) for row in rows[-2:]] == [
        ("| dr", "3", "clear |"), ("| null", "6", "not clear |")
    ]  # fmt: skip
    made.clear()
    assert main([str(path), "--until-clear", "--most", "6", "--report"], launch) == 0
    assert not made and capsys.readouterr().out.endswith(out[out.index("| less grpo") :])


def test_a_seed_that_failed_ends_it_and_the_next_command_goes_on(sweep_file, capsys):
    path = sweep_file(grid=GRID)
    launch, made = training(lambda v, s: None if (v, s) == ("dr", 1) else score(v, s))
    assert main([str(path), "--until-clear"], launch) == 1
    assert made[-1][1] == 1 and "fewer than 3" in capsys.readouterr().out
    launch, again = training(score)
    assert main([str(path), "--until-clear", "--most", "3"], launch) == 0
    assert again[0] == ("dr", 1) and not set(again) & {m for m in made if m != ("dr", 1)}


def test_seeds_count_in_order_up_to_the_first_that_is_missing(sweep_file):
    sweep = read_sweep(sweep_file(grid=GRID))
    results = [
        {"variant": variant, "seed": seed, "final": {"pass_at_1": score(variant, seed)}}
        for variant in LEVELS
        for seed in (0, 1, 2, 4, 5)
    ]
    question = until_clear.Question(variants=list(sweep.variants), against="grpo", most=20)
    looks = until_clear.looks_of(results, question)
    assert looks["null"].shift.num_seeds == 3


def evaluation(variant, seed, wrong=0):
    """Return an evaluation in which the variants differ by length alone, and `dr` is shorter."""
    tokens = 400 - 300 * (variant == "dr") + 1000 * float(NOISE[[*LEVELS].index(variant), seed])
    noise = float(NOISE[0, seed])
    return {
        "pass_at_1": 0.5 + noise * [*LEVELS].index(variant),
        "response_length_wrong": tokens if wrong is not None else None,
        "rewards": {"format": 0.9 + noise * (variant == "dr")},
        "onset": {},
    }


def test_a_study_is_settled_by_the_number_that_is_named(sweep_file, capsys):
    words = ["--until-clear", "--most", "4", "--measure"]
    path = sweep_file(grid=GRID)
    launch, made = training(evaluation)
    assert main([str(path), *words, "response_length_wrong"], launch) == 0
    out = capsys.readouterr().out
    assert [seed for variant, seed in made if variant == "dr"] == [0, 1, 2]
    assert [seed for variant, seed in made if variant == "null"] == [0, 1, 2, 3]
    table = out[out.index("| less grpo") :].splitlines()
    assert table[0].split(" | ")[2] == "response_length_wrong, 95 % at all looks"
    tokens_VS = [[evaluation(v, s)["response_length_wrong"] for s in range(3)] for v in LEVELS]
    mean = np.mean(tokens_VS[1]) - np.mean(tokens_VS[0])
    assert table[2].startswith(f"| dr | 3 | {mean:+.0f} (") and table[2].endswith("| clear |")
    assert "." not in table[2].split(" | ")[2], "tokens have no decimals"

    assert main([str(path), *words[:3], "--report"], launch) == 0
    assert " | pass@1, 95 % at all looks | " in capsys.readouterr().out
    assert main([str(path), *words, "rewards.format", "--report"], launch) == 0
    report = capsys.readouterr().out.splitlines()
    assert report[0].split(" | ")[2] == "rewards.format, 95 % at all looks"
    mean = np.mean(NOISE[0, :3])
    assert report[2].startswith(f"| dr | 3 | {mean:+.3f} (") and report[2].endswith("more seeds |")

    # one that is interrupted makes the same runs once, and ends the same
    other = sweep_file(grid=GRID, output=str(path.parent / "interrupted"))
    launch, first = training(lambda v, s: None if (v, s) == ("null", 1) else evaluation(v, s))
    assert main([str(other), *words, "response_length_wrong"], launch) == 1
    launch, rest = training(evaluation)
    assert main([str(other), *words, "response_length_wrong"], launch) == 0
    assert sorted([one for one in first if one != ("null", 1)] + rest) == sorted(made)
    whole, resumed = (path.parent / name / "results.jsonl" for name in ("out", "interrupted"))
    assert whole.read_bytes() == resumed.read_bytes()
    assert capsys.readouterr().out.splitlines()[-len(table) :] == table


def test_a_number_that_no_run_measured_is_refused_with_those_there_are(sweep_file, capsys):
    launch, made = training(evaluation)
    arguments = [str(sweep_file(grid=GRID)), "--until-clear", "--measure", "response_length"]
    assert main(arguments, launch) == 2
    said = capsys.readouterr().err
    assert (
        "--measure: 'response_length' is no number of the last evaluation of grpo, seed 0" in said
    )
    assert "has iteration, seconds, pass_at_1, response_length_wrong, rewards.format\n" in said
    assert len(made) == 3, "after the first seed"
    results = [{"variant": "grpo", "seed": 0, "final": evaluation("grpo", 0)}]
    for name in ("rewards", "rewards.format.mean", "onset", ""):
        question = until_clear.Question(variants=["grpo", "dr"], against="grpo", measure=name)
        with pytest.raises(ValueError, match=f"--measure: '{name}' is no number of the last"):
            question.numbers(results)


def test_a_run_without_wrong_responses_has_no_length_of_them(sweep_file, capsys):
    path = sweep_file(grid=GRID)
    scores = lambda v, s: evaluation(v, s, None if (v, s) == ("dr", 1) else 0)  # noqa: E731
    launch, made = training(scores)
    arguments = [str(path), "--until-clear", "--measure", "response_length_wrong"]
    assert main(arguments, launch) == 2
    assert "is no number of the last evaluation of dr, seed 1" in capsys.readouterr().err
    assert made[-1][1] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--most", "5"], "--most 5: it is for --until-clear"),
        (["--measure", "loss"], "--measure loss: it is for --until-clear"),
        (["--until-clear", "--most", "2"], "--most: 2 is too few"),
        (["--until-clear", "--seeds", "0,1"], "--seeds and --until-clear exclude each other"),
        (["--until-clear", "--dry-run"], "--dry-run and --until-clear exclude each other"),
        (["--until-clear", "--launcher", "submitit"], "needs --launcher local"),
        (["--until-clear", "--against", "drgrpo"], "against: 'drgrpo' is none of grpo, dr, null"),
    ],
)
def test_what_does_not_go_with_it_is_refused(sweep_file, arguments, said, capsys):
    assert main([str(sweep_file(grid=GRID)), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_studies_that_it_is_not_for_are_refused(sweep_file, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["late_onset", "--until-clear"]) == 2
    assert "has steps; it is for a study of one grid" in capsys.readouterr().err
    assert main([str(sweep_file(grid={"one": {"grpo": {}}})), "--until-clear"]) == 2
    assert "grpo is the only variant" in capsys.readouterr().err


def test_committed_rows_say_where_a_study_stands(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    arguments = [
        "algorithms",
        "--until-clear",
        "--most",
        "5",
        "--report",
        "--output",
        str(tmp_path),
    ]
    assert main(arguments) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + 7 - 1 and all(" | 5 | " in row for row in rows[1:])
