"""The report's arithmetic by hand, its figure, and the README that it fills in."""

from __future__ import annotations

import json
import math
import shutil

import pytest

from experiments.__main__ import main
from experiments.curves import draw, models_of
from experiments.fingerprint import begin
from experiments.page import END, START, fill_in
from experiments.report import as_table
from experiments.sweep import read_sweep
from experiments.tables import RULE, all_pairs, as_markdown, paired_table
from r1lit.files import read_records
from r1lit.metrics import mean, mean_and_error


def result(variant, seed, accuracy, length):
    evaluations = [
        {
            "iteration": 4 * i,
            "seconds": 10.0 * i,
            "pass_at_1": a,
            "cons_at_4": 0.5 + a / 2,
            "cons_at_16": 1 - a / 2,
            "response_length_tokens": n,
            "reflection_words_per_response": 0.5,
            "format": None,
        }
        for i, (a, n) in enumerate(zip(accuracy, length, strict=True))
    ]
    return {
        "variant": variant,
        "seed": seed,
        "seconds": evaluations[-1]["seconds"],
        "final": evaluations[-1],
        "best": max(evaluations, key=lambda e: e["pass_at_1"]),
        "evaluations": evaluations,
    }


RESULTS = [
    result("grpo", 0, [0.1, 0.4, 0.3], [50, 60, 70]),
    result("grpo", 1, [0.1, 0.2, 0.5], [50, 70, 80]),
    result("grpo", 2, [0.1, 0.6, 0.7], [50, 80, 120]),
    result("dapo", 0, [0.1, 0.2, 0.3], [50, 60, 70]),
]


def test_mean_and_standard_error_by_hand():
    # 0.3, 0.5, 0.7: mean 0.5, sample variance (0.04 + 0 + 0.04) / 2, error sqrt(0.04 / 3)
    mean, error = mean_and_error([0.3, 0.5, 0.7])
    assert mean == pytest.approx(0.5)
    assert error == pytest.approx(math.sqrt(0.04 / 3))
    assert mean_and_error([0.3]) == (0.3, None)


def test_table():
    # lengths 70, 80, 120: mean 90, variance (400 + 100 + 900) / 2 = 700, error sqrt(700 / 3)
    # best 0.4, 0.5, 0.7: mean 0.5333, variance 0.046667 / 2, error sqrt(0.023333 / 3) = 0.0882
    header, _, grpo, dapo = as_table(RESULTS).splitlines()
    assert cells(header) == [
        "variant",
        "n seeds",
        "pass@1",
        "cons@k",
        "tokens per response",
        "reflection words per response",
        "best pass@1",
        "training seconds",
    ]
    assert cells(grpo) == [
        "grpo",
        "3",
        "0.100 → 0.500 ± 0.115",
        "0.950 → 0.750 ± 0.058",  # the largest k
        "50 → 90 ± 15",
        "0.50 → 0.50 ± 0.00",
        "0.533 ± 0.088",
        "20 ± 0",
    ]
    assert cells(dapo) == [
        "dapo",
        "1",
        "0.100 → 0.300",
        "0.950 → 0.850",
        "50 → 70",
        "0.50 → 0.50",
        "0.300",
        "20",
    ]


def cells(row):
    return [cell.strip() for cell in row.split("|")[1:-1]]


def test_all_pairs_are_compared_over_seeds_and_corrected():
    """Means 0.5, 0.7 and 0.51 with an error of 0.0058 each: 0.2 apart is clear, 0.01 is not."""
    results = [
        result(name, place + seed, [0.1, mean + d], [5, 6])
        for place, name, mean in ((0, "a", 0.5), (10, "b", 0.7), (20, "c", 0.51))
        for seed, d in enumerate((-0.01, 0.0, 0.01))
    ]
    text = all_pairs([*results, result("alone", 0, [0.1, 0.9], [5, 6])])
    assert text.startswith("All pairs, over seeds: 2 of 3 clear after Holm's correction.")
    first, second, third = text.splitlines()[4:7]
    # 0.2 / 0.00816 = 24.5 with 4 degrees of freedom; 2.776 x 0.00816 = 0.0227
    assert first.startswith("| b − a | +0.200 (+0.177 to +0.223) | 1.6e-05 | 4.9e-05 |")
    assert second.startswith("| c − b | -0.190") and third.startswith("| c − a | +0.010 (-0.013 to")
    many = [
        result(f"v{v}", seed, [0.1, 0.05 * v + 0.01 * seed], [5, 6])
        for v in range(9)
        for seed in (0, 1)
    ]
    shown = all_pairs(many).splitlines()
    assert len(shown) == 4 + 30 + 4 and shown[-3] == "The other 6 pairs have a larger p."
    assert shown[-1] == RULE
    assert all_pairs(RESULTS) == "", "one of them has a single seed"
    elsewhere = [result("d", seed, [0.1, 0.9], [5, 6]) | {"shares": {"q": 1.0}} for seed in (0, 1)]
    assert all_pairs([*results, *elsewhere]) == all_pairs(results), "d was asked other problems"
    other = [{"variant": "e", "seed": seed, "final": {"loss": 0.5 + seed}} for seed in (0, 1)]
    assert all_pairs([*results, *other]) == all_pairs(results), "a loss is no pass@1"


def test_pairs_with_the_same_seeds_are_paired():
    """b less a is 0.03, 0.05 and 0.04: an error of 0.0058 with 2 degrees, though seeds vary by 0.2.

    2 degrees at 80 % need 5.65 errors: 0.033 is seen, and 0.04 is clear; half of p is 0.01.
    """
    finals = {"a": (0.3, 0.5, 0.7), "b": (0.33, 0.55, 0.74)}
    results = [
        result(name, seed, [0.1, value], [5, 6])
        for name, values in finals.items()
        for seed, value in enumerate(values)
    ]
    said, _, headings, _, row, _, rule = all_pairs(results).splitlines()
    assert said == "All pairs, over seeds: 1 of 1 clear after Holm's correction." and rule == RULE
    assert cells(headings)[-3:] == ["seen", "sign wrong", "more seeds"]
    assert cells(row) == [
        "b − a",
        "+0.040 (+0.015 to +0.065)",
        "0.02",
        "0.02",
        "0.033",
        "0.01",
        "0",
    ]
    assert "| b | 3 | +0.040 (+0.015 to +0.065) | – | – | – |" in paired_table(results)


def test_many_variants_are_a_row_each_after_training():
    results = [
        result(f"v{v}", seed, [0.1, 0.05 * v + 0.02 * seed], [5, 6])
        for v in range(11)
        for seed in (0, 1)
    ]
    axes = draw(results).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [f"v{v}" for v in reversed(range(11))]
    dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert dots == pytest.approx([0.05 * v + 0.01 for v in reversed(range(11))])


def test_curves_are_means_over_seeds_with_their_error():
    accuracy, length, reflection = draw(RESULTS).axes
    assert [line.get_label() for line in accuracy.lines] == ["grpo", "dapo"]
    assert list(accuracy.lines[0].get_xdata()) == [0, 4, 8]
    assert list(accuracy.lines[0].get_ydata()) == pytest.approx([0.1, 0.4, 0.5])
    assert list(length.lines[0].get_ydata()) == pytest.approx([50, 70, 90])
    assert list(reflection.lines[1].get_ydata()) == pytest.approx([0.5, 0.5, 0.5])
    band = accuracy.collections[0].get_paths()[0].vertices
    at_end = band[band[:, 0] == 8][:, 1]
    error = math.sqrt(0.04 / 3)
    assert min(at_end) == pytest.approx(0.5 - error)
    assert max(at_end) == pytest.approx(0.5 + error)


def test_the_caption_names_model_seeds_and_bands(sweep_file):
    grid = {"policy": {p: {"model": {"init_args": {"policy": p}}} for p in ("small", "large")}}
    model = models_of(read_sweep(sweep_file(grid=grid)))
    assert model == "small, large"
    caption = draw(RESULTS, model).get_supxlabel()
    assert caption == (
        "small, large; seeds 0, 1, 2; lines: means over seeds, bands: ± 1 s.e. of them; one seed of"
        " dapo"
    )
    alone = [result for result in RESULTS if result["seed"] == 0]
    assert draw(alone).get_supxlabel() == "seed 0; lines: one seed each"


def test_a_table_has_text_on_the_left_and_numbers_on_the_right():
    assert as_markdown(["a", "b"], [["x", ""]]) == "| a | b |\n|---|---:|\n| x |  |"
    assert as_markdown(["", "b"], [], num_text=2) == "| | b |\n|---|---|"
    assert as_markdown(["n"], iter([["1"]]), num_text=0) == "| n |\n|---:|\n| 1 |"


def test_filling_in_touches_only_what_is_between_the_markers():
    readme = f"before\n{START}\nold\n{END}\nafter\n"
    filled = fill_in(readme, "new")
    assert filled == f"before\n{START}\nnew\n{END}\nafter\n"
    assert fill_in(filled, "new") == filled
    with pytest.raises(ValueError, match="results"):
        fill_in("no markers", "new")


@pytest.mark.long
def test_the_command_writes_table_and_figure(sweep_file, tmp_path, capsys):
    path = sweep_file()
    readme = tmp_path / "README.md"
    readme.write_text(f"# Q\n{START}\n{END}\n")
    assert main([str(path), "--report", "--readme", str(tmp_path)]) == 2
    assert "no point is finished" in capsys.readouterr().err
    points = [read_sweep(path).point("grpo", seed) for seed in (0, 1)]
    for point, config in zip(points, (points[0].config, {"of": "another"}), strict=True):
        begin(point.folder, "point.yaml", config)
        (point.folder / "result.json").write_text(json.dumps(RESULTS[point.seed]))
    assert main([str(path), "--report", "--readme", str(tmp_path)]) == 0
    text = readme.read_text()
    assert "1 of 4 runs finished" in text
    assert (
        "| grpo | 1 | 0.100 → 0.300 | 0.950 → 0.850 | 50 → 70 | 0.50 → 0.50 | 0.400 | 20 |" in text
    )
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert read_records(tmp_path / "results.jsonl") == [RESULTS[0]]
    shutil.rmtree(points[0].folder.parents[1])
    readme.write_text(f"# Q\n{START}\n{END}\n")
    assert main([str(path), "--report", "--readme", str(tmp_path)]) == 0
    assert as_table([RESULTS[0]]) in readme.read_text(), "made anew of what is committed"


REWARD_MODEL = {"pass_at_1": None, "reward_model": {"auroc": 0.8}, "loss": 0.4}
DOCUMENTS = {"pass_at_1": None, "loss": 2.5, "response_length_tokens": None, "rewards": {}}
SPARSE = {"pass_at_1": 0.5}


@pytest.mark.long
@pytest.mark.parametrize(
    ("evaluation", "says"),
    [
        (REWARD_MODEL, "| grpo | 1 | 0.800 → 0.800 | 0.4000 → 0.4000 | 0.800 | 1 |"),
        (DOCUMENTS, "| grpo | 1 | 2.5000 → 2.5000 | 2.500 | 1 |"),
        (SPARSE, "| grpo | 1 | 0.500 → 0.500 | 0.500 | 1 |"),
    ],
    ids=["reward model", "documents", "few numbers"],
)
@pytest.mark.parametrize("readme", ["absent", "there"])
def test_every_kind_of_run_is_reported(sweep_file, tmp_path, evaluation, says, readme, capsys):
    """Whatever the runs measured, for one variant or more than there are colours."""
    names = ["grpo", *(f"v{i}" for i in range(9))] if readme == "there" else ["grpo"]
    path = sweep_file(grid={"one": {name: {} for name in names}}, seeds=[0])
    if readme == "there":
        (tmp_path / "README.md").write_text(f"# Q\nmine\n{START}\n{END}\nmine too\n")
    for variant in names:
        evaluations = [{"iteration": i, "seconds": float(i), **evaluation} for i in (0, 1)]
        of = {"variant": variant, "seed": 0, "seconds": 1.0, "evaluations": evaluations}
        finish(read_sweep(path).point(variant, 0), of | {"final": evaluations[-1]})
    assert main([str(path), "--report", "--readme", str(tmp_path)]) == 0, capsys.readouterr().err
    text = (tmp_path / "README.md").read_text()
    assert says in text and "![curves](curves.png)" in text
    assert ("mine too" in text) == (readme == "there")
    assert ("| less grpo |" in text) == (len(names) > 1)


def finish(point, result):
    begin(point.folder, "point.yaml", point.config)
    (point.folder / "result.json").write_text(json.dumps(result))


def test_failures_are_reported_where_nothing_is_finished(sweep_file, tmp_path):
    path = sweep_file()
    point = read_sweep(path).point("dr", 1)
    begin(point.folder, "point.yaml", point.config)
    (point.folder / "error.txt").write_text("OSError: [Errno 28] No | space `left`\n")
    assert main([str(path), "--report"]) == 0
    assert not (tmp_path / "README.md").exists()
    text = (tmp_path / "out" / "README.md").read_text()
    assert "0 of 4 runs finished" in text
    assert "| dr | 1 | `OSError: [Errno 28] No / space 'left'` |" in text


def test_a_readme_without_a_place_is_left_alone(sweep_file, tmp_path, capsys):
    path = sweep_file()
    (tmp_path / "README.md").write_text("# mine\n")
    finish(read_sweep(path).point("grpo", 0), RESULTS[0])
    assert main([str(path), "--report", "--readme", str(tmp_path)]) == 2
    assert START in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text() == "# mine\n"
    assert main([str(path), "--report", "--against", "drgrpo"]) == 2
    assert "against: 'drgrpo' is none of grpo, dr" in capsys.readouterr().err
    assert main([str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml: no study is called so" in capsys.readouterr().err


def test_variants_are_paired_by_seed_and_by_problem(sweep_file):
    # shares right by problem, over seeds 0 and 1; dr less grpo: a 1 - 0.5, b 0.5 - 0, c 0, d 0
    right = {
        ("grpo", 0): {"a": [1], "b": [0], "c": [1], "d": [0]},
        ("grpo", 1): {"a": [0], "b": [0], "c": [1], "d": [0]},
        ("dr", 0): {"a": [1], "b": [1], "c": [1], "d": [0]},
        ("dr", 1): {"a": [1], "b": [0], "c": [1], "d": [0]},
    }
    sweep = read_sweep(sweep_file())
    for (variant, seed), problems in right.items():
        shares = {uid: mean(values) for uid, values in problems.items()}
        made = result(variant, seed, [0.0, mean(list(shares.values()))], [5, 6])
        finish(sweep.point(variant, seed), made | {"shares": shares})
    results = sweep.results()
    last = paired_table(results).splitlines()[-1]
    # by seed: 0.75 - 0.5 and 0.5 - 0.25: 0.25 ± 0. Two problems differ by 0.5 each: of their four
    # sign patterns two lie as far out
    name, num, score, interval, p, better = cells(last)
    assert (name, num, score, p, better) == (
        "dr",
        "2",
        "+0.250 (+0.250 to +0.250)",
        "0.5",
        "2, 0 of 4",
    )
    low, high = (float(end) for end in interval.split(" to "))
    assert 0 <= low < 0.25 < high <= 0.5
    # the other way round, and against a variant without runs
    assert cells(paired_table(results, "dr").splitlines()[-1])[2] == "-0.250 (-0.250 to -0.250)"
    assert paired_table(results, "none") == ""
    # where a run kept no responses, seeds are compared still
    results[-1]["shares"] = None
    assert cells(paired_table(results).splitlines()[-1])[2:4] == ["+0.250 (+0.250 to +0.250)", "–"]
