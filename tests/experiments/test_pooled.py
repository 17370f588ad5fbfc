"""Pages of several studies together: from committed rows, and their arithmetic by hand."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib import import_module

import pytest
from scipy import stats
from tiny import ROOT

from experiments import page, pooled
from experiments.pooled import Comparison, over_studies, overturned_by
from experiments.tables import number
from r1lit.metrics.seeds import Shift, paired_shift

PAGES = ("grpo_against_dr_grpo", "own_right_answers")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_the_rows_say(name):
    table = import_module(f"experiments.{name}.__main__").report()
    readme = (ROOT / "experiments" / name / "README.md").read_text()
    assert page.fill_in(readme, table) == readme


def test_its_headline_is_that_of_the_table():
    for name, said in (
        ("grpo_against_dr_grpo", "0.070 (95 % interval over studies 0.029 to 0.111)"),
        ("own_right_answers", "+0.068, and its 95 % interval over studies holds 0 (−0.021 to"),
    ):
        module = import_module(f"experiments.{name}.__main__")
        whole = over_studies([comparison.shift() for comparison in module.COMPARISONS])
        numbers = [f"{value:.3f}".replace("-", "−") for value in (whole.mean, whole.low)]
        assert all(number in said for number in numbers)
        assert said in (ROOT / "experiments" / name / "README.md").read_text()


def test_each_study_counts_once():
    shifts = [Shift(mean=m, stderr=s, df=2) for m, s in ((0.1, 0.001), (0.2, 5.0), (0.3, 1.0))]
    whole = over_studies(shifts)
    wanted = stats.ttest_1samp([0.1, 0.2, 0.3], 0)
    assert (whole.mean, whole.p_value) == pytest.approx((0.2, wanted.pvalue))


@pytest.mark.parametrize("sign", [1, -1])
def test_what_would_overturn_it_does(sign):
    means = [sign * value for value in (0.05, 0.08, 0.1, 0.06)]
    zero, unclear = overturned_by([Shift(mean=m, stderr=0.1, df=2) for m in means])
    assert paired_shift([*means, zero]).mean == pytest.approx(0.0)
    assert paired_shift([*means, unclear]).p_value == pytest.approx(0.05)
    assert paired_shift([*means, unclear + sign * 0.01]).p_value < 0.05
    assert paired_shift([*means, unclear - sign * 0.01]).p_value > 0.05
    unsure = [Shift(mean=m, stderr=0.1, df=2) for m in (0.5, -0.4, 0.1)]
    assert overturned_by(unsure)[1] is None


def test_rows_of_no_such_side_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(pooled, "HERE", tmp_path)
    (tmp_path / "s").mkdir()
    record = {"variant": "grpo", "seed": 0, "final": {"pass_at_1": 0.5}}
    (tmp_path / "s" / page.RAW).write_text(json.dumps(record) + "\n")
    wrong = Comparison(study="s", key="variant", ours="grpo", others="dr_grpo", value=lambda r: 0.0)
    with pytest.raises(ValueError, match="no row has variant 'dr_grpo'; it has grpo"):
        wrong.shift()


def test_a_row_without_the_value_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(pooled, "HERE", tmp_path)
    (tmp_path / "s").mkdir()
    values = {"grpo": (0.5, 0.7, None), "dr-grpo": (0.4, 0.5, None), "raft": (None, None, None)}
    rows = [
        {"variant": name, "seed": seed, "right": right, "tokens": None if seed else 10.0}
        for name, own in values.items()
        for seed, right in enumerate(own)
    ]
    (tmp_path / "s" / page.RAW).write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"study": "s", "key": "variant", "ours": "grpo"}
    both = Comparison(**given, others="dr-grpo", value=number("right"), tokens=number("tokens"))
    assert both.row()[1:] == ["2", "0.600 − 0.450", "10 − 10"]
    assert both.shift().mean == pytest.approx(0.15)
    with pytest.raises(ValueError, match="no row of variant 'raft' has the value compared"):
        Comparison(**given, others="raft", value=number("right")).shift()


@pytest.mark.long
def test_the_command_fills_in_its_page(tmp_path):
    shutil.copy(ROOT / "experiments" / PAGES[0] / "README.md", tmp_path)
    command = [sys.executable, "-m", "experiments", PAGES[0], "--readme", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    committed = (ROOT / "experiments" / PAGES[0] / "README.md").read_text()
    assert (tmp_path / "README.md").read_text() == committed
