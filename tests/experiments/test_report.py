"""The report's arithmetic by hand, its figure, and the README that it fills in."""

from __future__ import annotations

import json
import math

import pytest

from experiments import report
from experiments.fingerprint import begin
from experiments.report import END, START, as_table, draw, fill_in
from experiments.sweep import read_sweep
from r1lit.metrics import mean_and_error


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
        "well-formed",
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
        "– → –",
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
        "– → –",
        "0.300",
        "20",
    ]


def cells(row):
    return [cell.strip() for cell in row.split("|")[1:-1]]


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


def test_filling_in_touches_only_what_is_between_the_markers():
    readme = f"before\n{START}\nold\n{END}\nafter\n"
    filled = fill_in(readme, "new")
    assert filled == f"before\n{START}\nnew\n{END}\nafter\n"
    assert fill_in(filled, "new") == filled
    with pytest.raises(ValueError, match="results"):
        fill_in("no markers", "new")


def test_the_command_writes_table_and_figure(sweep_file, tmp_path, capsys):
    path = sweep_file()
    readme = tmp_path / "README.md"
    readme.write_text(f"# Q\n{START}\n{END}\n")
    assert report.main([str(path)]) == 2
    assert "no point is finished" in capsys.readouterr().err
    points = [read_sweep(path).point("grpo", seed) for seed in (0, 1)]
    for point, config in zip(points, (points[0].config, {"of": "another"}), strict=True):
        begin(point.folder, "point.yaml", config)
        (point.folder / "result.json").write_text(json.dumps(RESULTS[point.seed]))
    assert report.main([str(path)]) == 0
    text = readme.read_text()
    assert "1 of 4 runs finished" in text
    assert (
        "| grpo | 1 | 0.100 → 0.300 | 0.950 → 0.850 | 50 → 70 | 0.50 → 0.50 | – → – | 0.400 | 20 |"
        in text
    )
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
