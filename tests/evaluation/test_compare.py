"""``r1lit-compare``, the report's groups and its Markdown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from r1lit.evaluation import compare
from r1lit.evaluation.records import as_markdown, summarise
from r1lit.metrics.seeds import paired_shift, welch_shift


def record(uid: str, sample: int, key: str, **groups: Any) -> dict[str, Any]:
    """Upper case is right, lower case wrong, a dot has no answer, ! is a time-out."""
    right = key.isupper()
    status = {".": "unparsed", "!": "timeout"}.get(key, "right" if right else "wrong")
    return {
        "uid": uid,
        "sample": sample,
        "source": "s",
        "groups": groups,
        "value": float(right),
        "status": status,
        "reason": "" if right else f"{status} | here",
        "canonical": key if key.isalpha() else None,
        "eval_metrics": {"format": 1.0},
        "num_tokens": 10 + sample,
        "finished": key != "!",
    }


def run(folder: Path, **problems: str) -> Path:
    folder.mkdir(parents=True)
    lines = [record(uid, g, key) for uid, keys in problems.items() for g, key in enumerate(keys)]
    (folder / "responses.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return folder


def test_two_runs_are_compared_problem_by_problem(tmp_path, capsys):
    a = run(tmp_path / "a", p="AA", q="Ab", r="b.")
    b = run(tmp_path / "b", r="bbbb", q="bbbb", p="AAbb")  # another order and another k
    output = tmp_path / "out.json"
    result = compare.main([str(a), str(b / "responses.jsonl"), "--output", str(output)])
    assert result.mean == pytest.approx((0.5 + 0.5 + 0.0) / 3)
    assert (result.better, result.worse, result.num_problems) == (2, 0, 3)
    assert result.p_value == 0.5  # two of four sign patterns
    assert "3 problems: +33.33 points" in capsys.readouterr().out
    assert json.loads(output.read_text())["p_value"] == 0.5
    assert compare.compare_runs(b, a).mean == pytest.approx(-result.mean)


def test_runs_of_other_problems_are_refused(tmp_path):
    a, b = run(tmp_path / "a", p="A", q="A"), run(tmp_path / "b", p="A")
    for one, other in ((a, b), (b, a)):
        with pytest.raises(ValueError, match="lacks 1 of the other's 2 problems, the first 'q'"):
            compare.compare_runs(one, other)
    with pytest.raises(ValueError, match="there is no file"):
        compare.compare_runs(a, tmp_path / "absent")
    (b / "responses.jsonl").write_text('{"uid": "p"}\n')
    with pytest.raises(ValueError, match="key 'value' is missing in"):
        compare.compare_runs(a, b)
    (b / "responses.jsonl").write_text("")
    with pytest.raises(ValueError, match="holds no responses"):
        compare.compare_runs(a, b)


def test_evaluations_of_one_training_run_are_compared(tmp_path, capsys):
    lines = []
    for iteration, (p, q) in {0: ("ab", "c."), 10: ("Ab", "CC"), 20: ("AA", "CC")}.items():
        for split, keys in (("train", "zz"), ("val", p), ("val", q)):
            uid = "p" if keys == p else "q"
            own = [record(uid, g, key) for g, key in enumerate(keys)]
            lines += [{"iteration": iteration, "split": split, **line} for line in own]
    path = tmp_path / "responses.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert compare.main([str(tmp_path)]).mean == 1.0
    assert "first evaluation" in capsys.readouterr().out
    assert compare.main([f"{tmp_path}@10", f"{tmp_path}@0"]).mean == 0.75
    assert compare.main([f"{tmp_path}", f"{tmp_path}@10"]).mean == 0.25
    with pytest.raises(ValueError, match="no evaluation at iteration 5; it has 0, 10, 20"):
        compare.main([f"{tmp_path}@5"])


def groups(**problems: str) -> dict[str, list[dict[str, Any]]]:
    return {
        uid: [record(uid, g, key, level=len(uid)) for g, key in enumerate(keys)]
        for uid, keys in problems.items()
    }


def test_a_report_by_hand():
    report = summarise(groups(p="AAb", pp="b.!"), settings={"seed": 0}, group_by=["level"])
    assert report["pass_at_1"]["value"] == pytest.approx(1 / 3)
    assert report["pass_at_1"]["stderr"] == pytest.approx(1 / 3)
    assert report["pass_at_k"]["2"]["value"] == pytest.approx(1 / 2)
    assert report["cons_at_k"]["3"]["value"] == pytest.approx(1 / 2)
    assert report["cons_at_k"]["1"]["value"] == pytest.approx(1 / 3)
    assert report["by"]["level"]["1"]["value"] == pytest.approx(2 / 3)
    assert report["by"]["level"]["2"] == {
        "num_problems": 1, "value": 0.0, "stderr": None, "low": None, "high": None,
    }  # fmt: skip
    assert report["truncated"] == pytest.approx(1 / 6)
    assert report["verdicts"] == {"right": 2, "wrong": 2, "unparsed": 1, "timeout": 1, "error": 0}
    assert report["reasons"][0] == {"status": "wrong", "reason": "wrong | here", "count": 2}
    assert report["response_length"]["mean"] == 11 and report["eval_metrics"] == {"format": 1.0}
    json.dumps(report, allow_nan=False)


def test_its_table_holds_the_numbers_and_stays_a_table():
    report = summarise(groups(p="AAb", pp="b.!"), settings={"seed": 7}, group_by=["level"])
    table = as_markdown(report, "sums")
    assert "| pass@1 | 33.3 | 33.3 | 0.0 to 66.7 |" in table
    assert "| cons@3 | 50.0 |  | 0.0 to 100.0 |" in table
    assert "| verdict: timeout | 1 |" in table and "| seed | 7 |" in table
    assert "wrong \\| here" in table
    for block in table.split("\n\n"):
        rows = [line.replace("\\|", "") for line in block.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1


def test_uneven_groups_are_refused():
    with pytest.raises(ValueError, match=r"2 problems with \[1, 2\] responses each"):
        summarise(groups(p="AA", q="A"), settings={})
    with pytest.raises(ValueError, match="0 problems"):
        summarise({}, settings={})


def test_the_samples_that_the_report_counts_are_compared(tmp_path):
    a = run(tmp_path / "a", p="Aaaa", q="aAaa")
    b = run(tmp_path / "b", p="a", q="a")
    (a / "report.json").write_text('{"num_samples": 1}')
    output = tmp_path / "new" / "out.json"
    assert compare.main([str(a), str(b), "--output", str(output)]).mean == 0.5
    assert json.loads(output.read_text())["better"] == 1
    (b / "responses.jsonl").write_text('{"uid": null, "value": 1.0}\n')
    with pytest.raises(ValueError, match="key 'uid' is missing"):
        compare.compare_runs(a, b)


def test_samples_that_go_together_save_variance(tmp_path, capsys):
    # p: (1, 1, 0, 0) and (1, 0, 0, 0); q: all right. Differences (0, 1, 0, 0): variance 3/16,
    # alone 1/4 + 3/16.
    a = run(tmp_path / "a", p="AAbb", q="AAAA")
    b = run(tmp_path / "b", p="Abbb", q="AAAA")
    samples = compare.paired_samples(a, b)
    assert samples == {"num_pairs": 8, "same": 7 / 8, "variance_ratio": pytest.approx(3 / 7)}
    compare.main([str(a), str(b)])
    assert "87.5% of 8 verdicts are the same; sampling variance 0.43" in capsys.readouterr().out
    fewer = run(tmp_path / "c", p="Ab", q="AA")
    assert compare.paired_samples(a, fewer) == {}


def seeds(folder: Path, rights: list[int], first: int = 0) -> Path:
    """Write a run a seed, of ten problems; so many of them are right."""
    for seed, num in enumerate(rights, start=first):
        run(folder / f"seed-{seed}", **{f"p{i}": "A" if i < num else "b" for i in range(10)})
    return folder


def test_folders_of_seeds_are_compared_over_seeds(tmp_path, capsys):
    """A less B is 0.2, 0.1 and 0.3: mean 0.2, error 0.0577, t with 2 degrees 4.303."""
    a, b = seeds(tmp_path / "a", [6, 7, 9]), seeds(tmp_path / "b", [4, 6, 6])
    found = compare.main([str(a), str(b), "--output", str(tmp_path / "out.json")])
    assert found == paired_shift([0.6 - 0.4, 0.7 - 0.6, 0.9 - 0.6])
    out = capsys.readouterr().out
    assert "3 seeds (paired by seed): +20.00 points" in out
    assert "95 % interval -4.84 to +44.84" in out and "the sign is wrong with probability" in out
    assert "so many seeds see a difference of 32.64 points" in out, "5.653 errors of 0.0577"
    assert f"{found.seeds_to_settle()} more seeds would settle it" in out
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["more_seeds"] == found.seeds_to_settle() and written["num_seeds"] == 3


def test_runs_are_paired_by_the_seed_that_their_paths_name(tmp_path, capsys):
    a, b = seeds(tmp_path / "a", [6, 7, 9]), seeds(tmp_path / "b", [4, 6, 6])
    ours = [str(path) for path in sorted(a.iterdir(), reverse=True)]
    whole = compare.main([str(a), str(b)])
    listed = compare.main([*ours, "--less", *map(str, sorted(b.iterdir()))])
    assert listed == whole, "whatever the order they are named in"
    apart = seeds(tmp_path / "c", [4, 6, 6], first=7)
    assert compare.main([str(a), str(apart)]) == welch_shift([0.4, 0.6, 0.6], [0.6, 0.7, 0.9])
    assert "seeds not paired, Welch" in capsys.readouterr().out
    for fork, num in (("same", 4), ("grpo", 6)):
        for seed in (0, 1):
            problems = {f"p{i}": "A" if i < num + seed else "b" for i in range(10)}
            run(tmp_path / f"seed-{seed}" / fork, **problems)
    forks = [[str(tmp_path / f"seed-{s}" / fork) for s in (0, 1)] for fork in ("grpo", "same")]
    found = compare.main([*forks[0], "--less", *forks[1]])
    assert found.is_paired and found.mean == pytest.approx(0.2)


def test_runs_that_cannot_be_compared_over_seeds_are_refused(tmp_path):
    a, b = seeds(tmp_path / "a", [6, 7]), seeds(tmp_path / "b", [4])
    with pytest.raises(ValueError, match="runs: 2 and 1 are too few to compare over seeds"):
        compare.main([str(a), str(b)])
    with pytest.raises(ValueError, match="runs: 3 are given; name those of the other side after"):
        compare.main([str(a), str(b), str(b)])
    run(b / "seed-1", q="A")  # of another problem
    with pytest.raises(ValueError, match="hold other problems, 1 and 10"):
        compare.main([str(a), str(b)])
    run(tmp_path / "c" / "seed-0", q="A"), run(tmp_path / "c" / "seed-1", q="b")
    with pytest.raises(ValueError, match="differ in 11 problems, the first 'p0'"):
        compare.main([str(a), str(tmp_path / "c")])


def test_without_scipy_the_error_says_what_to_install(tmp_path, monkeypatch):
    a, b = seeds(tmp_path / "a", [6, 7]), seeds(tmp_path / "b", [4, 5])
    monkeypatch.setattr(compare, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'r1lit\[sweep\]'"):
        compare.main([str(a), str(b)])
