"""What RL adds: the shortest version of it, and what its policies decide."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import torch
import yaml
from tiny_sweep import ROOT, TINY, data, shortened, study_file

from experiments.__main__ import main
from experiments.compose import merge
from experiments.what_rl_adds.decisions import (
    CHECK,
    FIRST,
    GO_ON,
    NUMBER,
    SECOND,
    WORDING,
    kinds_of,
    measure,
)
from experiments.what_rl_adds.report import decisions_table
from experiments.what_rl_adds.rewards import Coin
from r1lit.files import read_records
from r1lit.policy import load_policy, load_tokenizer
from r1lit.problems import Problem, Response, Verdict
from r1lit.text.prompts import render

RIGHT = Verdict(value=1.0, status="right", canonical="1", reason="")


def response(text: str, uid: str = "a") -> Response:
    problem = Problem(uid=uid, question="?", answer="1", source="hand")
    return Response(text=text, problem=problem, verdict=RIGHT, num_tokens=1, finished=True)


def test_the_coin_is_fair_and_knows_neither_answer_nor_history():
    tossed = Coin()([response(f"text {i}") for i in range(2000)])
    assert set(tossed) == {0.0, 1.0} and 0.45 < sum(tossed) / 2000 < 0.55
    assert Coin()([response("text 7")]) == [tossed[7]]
    other = Coin()([response(f"text {i}", uid="b") for i in range(2000)])
    assert 0.45 < sum(a == b for a, b in zip(tossed, other, strict=True)) / 2000 < 0.55


def test_what_a_policy_never_comes_to_decide_has_no_row():
    never = {"decisions": 0.0, "base": 0.0, "policy": 0.0}
    once = {"decisions": 2.0, "base": math.log(0.25), "policy": math.log(0.81)}
    rows = decisions_table([{"kinds": {"go on": once, "check": never}}]).splitlines()
    assert rows[2:] == ["| go on | 2 | 0.500 → 0.900 | 1.2 | 1.00 |", "| all |  |  | 1.2 |  |"]


def test_what_each_token_decides():
    text = (
        " <think> 4 + 3 = 7, 9: 9 + 7 ~ 15 < 62, 9 - 7 ~ 0 < 62. But 9 * 7 = 63, 4:"
        " 63 - 4 ~ 60 ~ 62, wait, 63 - 4 = 59 < 62. I give up. </think>"
    )
    kinds = kinds_of(text)

    def decided(part: str, whole: str) -> str:
        (kind,) = {kinds[text.index(whole) + whole.index(part) + i] for i in range(len(part))}
        return kind

    for part, whole, kind in (
        ("9 * 7", "9 * 7 =", FIRST),
        ("63", "= 63", NUMBER),
        ("4:", "63, 4:", FIRST),
        ("9 + 7", "9 + 7 ~", SECOND),
        ("15 < 62", "15 < 62", NUMBER),
        (",", "62, 9", GO_ON),
        (".", "62. But", GO_ON),
        (", wait", ", wait", CHECK),
        ("59", "59", NUMBER),
        ("give up", "give up", WORDING),
    ):
        assert decided(part, whole) == kind, whole


@pytest.mark.long
@torch.inference_mode()
def test_decisions_of_a_policy_that_hardly_gives_up(tmp_path: Path):
    base = str(ROOT / "models" / "search")
    tokenizer, model = load_tokenizer(base), load_policy(base).model
    text = (
        " <think> Let me think. 4 + 3 = 7, 9: 9 + 7 ~ 15 < 62, 9 - 7 ~ 0 < 62, 9 * 7 ~ 65 > 62."
        " 4 - 3 = 1, 9: 9 + 1 ~ 10 < 62. I give up. </think> <answer> ( 4 + 3 ) + 9 </answer>"
    )
    question = "Using 4, 3 and 9, make 62."
    response = {"question": question, "response": text, "sample": 0, "finished": True}
    asked = tokenizer(render("small_world", question))["input_ids"]
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    logits = model(torch.tensor([asked + ids])).logits[0, len(asked) - 1 : -1]
    whole = float(logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None]).sum())

    same = measure(base, base, [response])
    assert all(own["policy"] == own["base"] for own in same.values())
    assert math.isclose(sum(own["base"] for own in same.values()), whole, rel_tol=1e-4)
    # a comma twice, a full stop twice, going on after the first and giving up after the second
    assert same[GO_ON]["decisions"] == 6
    assert sum(own["decisions"] for own in same.values()) == len(ids) + 1

    (give_up,) = tokenizer(" I", add_special_tokens=False)["input_ids"]
    model.get_output_embeddings().weight[give_up] *= 0.2
    model.save_pretrained(tmp_path)
    went_on = response | {"response": text.replace(". I give up", "")}
    moved = {kind: own["policy"] - own["base"]
             for kind, own in measure(str(tmp_path), base, [went_on]).items()}  # fmt: skip
    moved.pop(WORDING)  # " I" also begins an opening
    assert moved.pop(GO_ON) > 0.1 > 10 * max(map(abs, moved.values()))


@pytest.mark.slow
def test_from_the_controls_to_the_page(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(ROOT)
    steps = {s["name"]: s for s in yaml.safe_load(study_file("what_rl_adds").read_text())["steps"]}
    few = {"class_path": "r1lit.worlds.WorldSearch"}
    asked = [merge(few, {"init_args": {"split": "train", "num_problems": 12}})]
    held_out = [merge(few, {"init_args": {"split": "held_out", "num_problems": 6}})]
    limits = {
        "sampling": {"max_tokens": 24},
        "max_tokens_from": None,
        "policy": {"from_scratch": True},
    }
    rl = merge(TINY, {
        "model": {"init_args": {**limits, "validation_sampling": {"max_tokens": 24}}},
        "data": {"init_args": {"train": asked, "validation": held_out}},
    })  # fmt: skip
    pages = [{"class_path": "r1lit.worlds.SearchCorpus", "init_args": {"num_documents": 60}}]
    read = data(num_iterations=2, documents=pages, validation_documents=pages)["set"]
    read["trainer"] = {"val_check_interval": 2}

    def short(name: str, tiny: dict, kept: dict) -> dict:
        """Return what makes a grid of these variants alone, each tiny."""
        (tmp_path / f"{name}-tiny.yaml").write_text(yaml.safe_dump(tiny))
        base = [*steps[name]["base"], str(tmp_path / f"{name}-tiny.yaml")]
        [axis] = steps[name]["grid"]
        return {"base": base, "output": str(tmp_path / name), "grid": {axis: kept}}

    controls = steps["controls"]["grid"]["control"]
    kept = {name: controls[name] for name in ("recipe", "random-reward")}
    made = tmp_path / "pages" / "patient-5" / "seed-0" / "policy"
    dose = {"model": {"init_args": {"policy": {"path": str(made), "from_scratch": False}}}}
    policy = str(tmp_path / "controls" / "recipe" / "seed-0" / "policy")
    pages_5 = {"data": {"init_args": {"documents": [
        merge(pages[0], {"init_args": {"patient": 0.05}})]}}}  # fmt: skip
    drawn = data(evaluation={"num_samples": 4}, test=held_out)
    drawn["set"]["model"] = {"init_args": {"sampling": {"max_tokens": 24}}}
    drawn_at = f"{tmp_path}/runs/seed-0/samples/rl"
    measured = [f"{drawn_at}/responses.jsonl", f"{drawn_at}/decisions.json"]
    small = tmp_path / "small"
    changes = {
        "sft": {"set": read},
        "base_samples": drawn,
        "rl_samples": merge(
            drawn, {"set": {"model": {"init_args": {"policy": policy}}}, "reads": [policy]}
        ),
        "decisions": {
            "arguments": [policy, "models/search", *measured],
            "reads": [policy, measured[0]],
            "writes": [measured[1]],
        },
        "sft_samples": drawn,
        "small": {
            "arguments": [str(small), "--size=search_small"],
            "writes": [str(small / "config.json")],
        },
    }
    arguments = shortened(tmp_path, "what_rl_adds", changes)
    content = yaml.safe_load((tmp_path / "study.yaml").read_text())
    grids = {
        "controls": short("controls", rl, kept),
        "pages": short("pages", read, {"patient-5": pages_5}),
        "doses": short("doses", rl, {"patient-5": dose}),
    }
    content["steps"] = [{**step, **grids.get(step["name"], {})} for step in content["steps"]]
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    assert main(arguments) == 0, capsys.readouterr().out
    assert (small / "config.json").exists(), "made for seed 0, whatever the study's seeds"
    readme = (tmp_path / "README.md").read_text()
    for row in (
        "| recipe | 1 |",
        "| random-reward | 1 |",
        "| base | 1 |",
        "| RL | 1 |",
        "| patient-5 | 1 |",
    ):
        assert row in readme, row
    kept = read_records(tmp_path / "results.jsonl")
    assert Counter(r["part"] for r in kept) == {
        "controls": 2,
        "samples": 3,
        "decisions": 1,
        "doses": 1,
    }
    assert len(kept[0]["entropies"]) == 2
    assert (tmp_path / "what_rl_adds.png").exists()
