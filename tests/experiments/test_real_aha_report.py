"""The page of the study: verdicts by the stated rule, its steps, and a page of a tiny real run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_sweep import ROOT, shortened
from transformers import AutoConfig

from experiments.__main__ import main
from experiments.compose import merge
from experiments.real_aha import authors, claims, pilot, report
from experiments.real_aha.compute import EqualCompute
from experiments.real_aha.traces import Searches
from r1lit.evaluation.records import response_record
from r1lit.files import read_records, replace_json, write_records
from r1lit.policy.flops import Shape, training_flops
from r1lit.problems import Problem, Response
from r1lit.verifiers.countdown import CountdownVerifier

SPREAD = (-0.02, 0.0, 0.02)
"""What seeds 1, 2, 3 add to a rise; 4.3 standard errors of these three are 0.05."""


def evaluation(accuracy: float, attempts: float, tokens: float = 60.0) -> dict[str, Any]:
    """Return an evaluation of 16 responses; k of them hold a right one as if independent."""
    return {
        "accuracy": accuracy, "attempts": attempts, "tokens": tokens, "cut": 0.01, "checks": 0.3,
        "repeated": 0.1, "wrong_computations": 0.02, "false_hits": 4, "false_hits_found": 1,
        "num_problems": 24, "num_samples": 16, "mixed_groups": 0.7, "easy_accuracy": 0.6,
        "pass_at_k": {str(k): 1 - (1 - accuracy) ** k for k in range(1, 17)},
        "cons_at_k": {str(k): accuracy for k in range(1, 17)},
        "shown": {"Using 3, 4 and 9, make 63.": "9*7=63. I give up."},
    }  # fmt: skip


def runs(arm: str, accuracy: float, attempts: float, seeds: int = 3) -> list[dict[str, Any]]:
    """Return an arm's runs, whose rises are these on average and differ by ``SPREAD``."""
    return [
        {
            "arm": arm, "seed": seed, "flops": 2.5e15, "before": evaluation(0.15, 2.0),
            "after": evaluation(0.15 + accuracy + more, 2.0 + attempts + more, 150.0),
            "evaluations": [
                {"iteration": i, **evaluation(0.15 + accuracy * i / 60, 2.0)} for i in (0, 60)
            ],
        }
        for seed, more in enumerate(SPREAD[:seeds], start=1)
    ]  # fmt: skip


def verdicts(*arms: list[dict[str, Any]]) -> dict[str, str]:
    """Return the verdict of each claim as the page prints it."""
    page, _ = report.report([own for arm in arms for own in arm])
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line[:5] in CLAIMS]
    return {letter: said for letter, _, said in rows}


CLAIMS = ("| a |", "| b |", "| c |")


def control(arm: str, accuracy: float) -> list[dict[str, Any]]:
    """Return an arm without more attempts, whose seeds vary the other way than those of search."""
    return [
        {**own, "after": evaluation(0.15 + accuracy - more, 2.0)}
        for own, more in zip(runs(arm, accuracy, 0.0), SPREAD, strict=True)
    ]


def test_every_claim_holds_where_search_alone_rises():
    found = verdicts(runs("search", 0.3, 2.0), control("filler", 0.05), control("direct", 0.1))
    assert found == {"a": "holds", "b": "holds", "c": "holds"}


def test_a_is_refuted_by_either_number():
    for arm in (runs("search", 0.03, 2.0), runs("search", 0.3, 0.03), runs("search", -0.3, 2.0)):
        assert verdicts(arm)["a"] == "refuted"


@pytest.mark.parametrize("accuracy", [0.3, 0.25, 0.5])
def test_b_and_c_are_refuted_where_the_control_rises_as_much_or_more(accuracy):
    # the three differences vary by 0.04, so 4.3 standard errors of them are 0.1
    search = runs("search", 0.3, 2.0)
    found = verdicts(search, control("filler", accuracy), control("direct", 0.1))
    assert found == {"a": "holds", "b": "refuted", "c": "holds"}
    found = verdicts(search, control("filler", 0.1), control("direct", accuracy))
    assert found == {"a": "holds", "b": "holds", "c": "refuted"}


def test_too_few_seeds_have_no_verdict():
    found = verdicts(runs("search", 0.3, 2.0), runs("filler", 0.0, 0.0, seeds=2))
    assert found["a"] == "holds"
    assert found["b"] == "no verdict yet: 2 of 3 seeds"
    assert found["c"] == "no verdict yet: 0 of 3 seeds"


def test_the_readme_states_the_rule_and_the_claims():
    page = (ROOT / "experiments/real_aha/README.md").read_text()
    for claim in claims.CLAIMS:
        assert f"- {claim.letter})" in page
    assert "lies above zero" in page and "refuted otherwise" in page


def test_arms_without_rows_are_named_so():
    page, _ = report.report(runs("search", 0.3, 2.0, seeds=1))
    lines = page.splitlines()
    assert any(line.startswith("| search | 1 | 0.150 → 0.430 | 2.00 → 3.98") for line in lines)
    for name in report.ARMS.values():
        if name != "search":
            assert any(line.startswith(f"| {name} | 0 | no rows yet |") for line in lines), name
    assert "| base | 0 | no rows yet |" in page and "| IFEval | 0 | no rows yet |" in page
    empty, _ = report.report([])
    assert "holds" not in empty.replace("a claim holds", "") and empty.count("no rows yet") > 14


def test_the_primed_policy_gets_as_many_responses_as_the_trained_ones_tokens_pay():
    before = evaluation(0.2, 2.0)
    before["cons_at_k"]["3"] = 0.25
    own = {"seed": 1, "before": before, "after": evaluation(0.5, 4.0, tokens=150.0)}
    k, best, vote = report.best_of(own)
    assert (k, vote) == (3, 0.25) and best == pytest.approx(1 - 0.8**3)
    own["after"]["tokens"] = 10.0
    assert report.best_of(own)[0] == 1
    own["after"]["tokens"] = 6000.0
    assert report.best_of(own)[0] == 16, "no more than there are"


def rows_by_authors(problems: list[Problem]) -> list[dict[str, Any]]:
    """Return four responses to each problem by the documents' authors, as an evaluation's lines."""
    rows = []
    for problem in problems:
        for sample in range(4):
            text = authors.response(problem, 0, sample)
            verdict = CountdownVerifier().verify(text, problem)
            rows.append(response_record(Response(
                text=text, problem=problem, verdict=verdict, num_tokens=len(text), finished=True,
            ), sample))  # fmt: skip
    return rows


def test_an_evaluation_is_read_whatever_the_order_of_its_lines(tmp_path: Path):
    made = rows_by_authors(Searches("held_out", 24).problems())
    found = []
    for name, rows in (("one", made), ("other", made[::-1])):
        write_records(tmp_path / name / "responses.jsonl", rows)
        assert report.evaluation_of(tmp_path / name) is None, "not finished"
        (tmp_path / name / "report.json").write_text("{}")
        found.append(report.evaluation_of(tmp_path / name))
    assert found[0] == found[1] and found[0]["num_problems"] == 12
    hard = sorted(
        {row["uid"]: row["question"] for row in made if pilot.is_hard(row["uid"])}.items()
    )
    assert list(found[0]["shown"]) == [question for _, question in hard[:10]]
    right = [row["value"] for row in made if pilot.is_hard(row["uid"])]
    assert found[0]["accuracy"] == found[0]["pass_at_k"]["1"] == sum(right) / len(right)
    assert found[0]["wrong_computations"] == found[0]["repeated"] == 0.0


def test_a_suites_score_is_read_from_its_own_folder(tmp_path: Path):
    assert report.score_of(tmp_path, "mmlu") is None
    (tmp_path / "report.json").write_text(json.dumps({"suites": ["mmlu"]}))  # the table of suites
    own = {"pass_at_1": {"value": 0.25}}
    replace_json(tmp_path / "mmlu" / "report.json", own)
    assert report.score_of(tmp_path, "mmlu") == 0.25


def test_other_tasks_are_compared_by_seed():
    rows = [
        {"arm": "elsewhere", "seed": seed, "scores": {"primed_mmlu": 0.1, "trained_mmlu": value}}
        for seed, value in ((1, 0.2), (2, 0.22))
    ]
    page, _ = report.report(rows)
    assert "| MMLU | 2 | – | 0.100 ± 0.000 | 0.210 ± 0.010 |" in page
    assert "| MMLU | +0.110 (" in page


def test_the_steps_of_the_study_are_read(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["real_aha", "ifeval=ifeval.jsonl", "mmlu=mmlu.jsonl", "--dry-run"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    of_seed = {seed: [line[-1] for line in lines if f"seed-{seed}" in line[-2]] for seed in (1, 2)}
    assert set(of_seed[2]) < set(of_seed[1])
    assert set(of_seed[1]) - set(of_seed[2]) == {
        *(f"wrong_{step}" for step in ("prime", "prime_evaluation", "rl", "rl_evaluation")),
        *(f"{arm}_rl{end}" for arm in ("unprimed", "format") for end in ("", "_evaluation")),
        "sft", "sft_evaluation", "base_evaluation", "base_ifeval", "base_mmlu",
    }  # fmt: skip


def test_a_budget_needs_the_run_that_spent_it(tmp_path: Path):
    with pytest.raises(ValueError, match=r"^like: there is no file '.*compute\.json'"):
        EqualCompute("compute.json", str(tmp_path / "compute.json"))
    (tmp_path / "compute.json").write_text(json.dumps({"flops": 3e9}))
    assert EqualCompute("own.json", str(tmp_path / "compute.json")).limit == 3e9


DOCUMENTS = "experiments.real_aha.traces.PrimingDocuments"
MINI = "models/mini"
FEW = {"num_tokens": 1000, "num_documents": 6, "tokenizer": MINI}


def documents(arm: str) -> list[dict[str, Any]]:
    return [{"class_path": DOCUMENTS, "init_args": {"arm": arm, **FEW}}]


def searches(**options: Any) -> list[dict[str, Any]]:
    found = {"class_path": "experiments.real_aha.traces.Searches"}
    return [{**found, "init_args": options}]


def short_steps() -> dict[str, Any]:
    """Return what makes the steps of the page small, each the shipped one otherwise."""
    exact = {"set": {"trainer": {"precision": "32-true"}}}
    held_out = searches(split="held_out", num_problems=8)
    evaluated = merge(exact, {"set": {
        "model": {"init_args": {"sampling": {"max_tokens": 12}}},
        "data": {"init_args": {"test": held_out, "evaluation": {"num_samples": 2}}},
    }})  # fmt: skip
    train = searches(split="train", num_problems=6, max_attempts=11)
    prime = {"model": {"init_args": {"policy": {"path": MINI}}},
             "data": {"init_args": {"documents": documents("search"),
                                    "validation_documents": documents("search")}}}  # fmt: skip
    rl = {
        "model": {"init_args": {"sampling": {"max_tokens": 12}, "max_tokens_from": None,
                                "train_batch_size": 4}},
        "data": {"init_args": {"num_iterations": 2, "train": train, "validation": held_out,
                               "rollout": {"prompts_per_iteration": 2, "group_size": 2},
                               "evaluation": {"num_samples": 2}}},
        "trainer": {"val_check_interval": 1},
    }  # fmt: skip
    other = {"set": {"data": {"init_args": {"test": searches(
        split="held_out", num_problems=4, min_attempts=6, num_numbers=4)}}}}  # fmt: skip
    return {
        "search_prime": merge(exact, {"set": prime, "reads": [MINI]}),
        "search_rl": merge(exact, {"set": rl}),
        "search_prime_evaluation": evaluated,
        "search_rl_evaluation": evaluated,
        "sft": merge(exact, {"set": {"data": {"init_args": {
            "documents": documents("solved"), "validation_documents": documents("search"),
            "packing": {"documents_per_update": 1}}}},
            "seeds": [0]}),
        "sft_evaluation": merge(evaluated, {"seeds": [0]}),
        "trained_four_numbers": merge(evaluated, other),
    }  # fmt: skip


@pytest.mark.slow
def test_the_page_of_a_tiny_run(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    changes = short_steps()
    arguments = shortened(tmp_path, "real_aha", changes)
    content = yaml.safe_load((tmp_path / "study.yaml").read_text())
    content["steps"] = [step for step in content["steps"] if step["name"] in changes]
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    assert main([*arguments, "ifeval=none", "mmlu=none"]) == 0, capsys.readouterr()
    records = {r["arm"]: r for r in read_records(tmp_path / "results.jsonl")}
    assert set(records) == {"search", "sft", "elsewhere"}
    search, sft = records["search"], records["sft"]
    assert search["after"]["num_problems"] == 4 and search["after"]["num_samples"] == 2
    assert [e["iteration"] for e in search["evaluations"]] == [0, 1, 2]
    longest = training_flops(Shape.of(AutoConfig.from_pretrained(MINI)), [1024])  # max_seq_len
    assert 0 < search["flops"] <= sft["flops"] < search["flops"] + longest
    assert sft["before"] == search["before"] and sft["evaluations"] == []
    kept = read_records(tmp_path / "runs/seed-0/search/rl_evaluation/responses.jsonl")
    hard = [row for row in kept if int(row["uid"].split("-")[-1]) >= 6]
    assert search["after"]["tokens"] == sum(r["num_tokens"] for r in hard) / len(hard)
    readme = (tmp_path / "README.md").read_text()
    assert "| a | RL raises accuracy and attempts | no verdict yet: 1 of 3 seeds |" in readme
    assert "| search | 1 | 0." in readme and "| filler | 0 | no rows yet |" in readme
    assert "| four numbers | 1 | – | – | 0.000 |" in readme
    assert "| numbers 13 to 20 | 0 | no rows yet |" in readme
    assert "\n  - primed: `" in readme and (tmp_path / "arms.png").exists()
