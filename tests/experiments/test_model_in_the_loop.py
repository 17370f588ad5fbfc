"""A model in the oracles' place: growing it, agreement by hand, the page, the shortest run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from tiny_sweep import ROOT, data, shortened, study_file
from transformers import LlamaForCausalLM

from experiments.__main__ import main as run
from experiments.compose import merge
from experiments.model_in_the_loop.agreement import (
    agreement_of,
    compared,
    in_one_language,
    pair_accuracy,
    problem_in,
)
from experiments.model_in_the_loop.grow import PROMPTS, constant_parts, grow
from experiments.model_in_the_loop.report import verdict
from r1lit.batches import Problem
from r1lit.files import read_records, write_records
from r1lit.policy import load_tokenizer
from r1lit.worlds import WorldChain, WorldCountdown, WorldRequests
from r1lit.worlds.scaffold import SIZES

HERE = study_file("model_in_the_loop").parent


def test_the_larger_model_begins_as_the_base(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    size = replace(SIZES["judge"], layers=6)
    num = grow("models/mini", tmp_path / "grown", size)
    tokenizer, old = load_tokenizer(str(tmp_path / "grown")), load_tokenizer("models/mini")
    text = "Q: Using 5, 6 and 7, make 12.\nA: 试 7 * 5 = 35"
    assert tokenizer(text)["input_ids"] == old(text)["input_ids"]
    ids = torch.tensor([old(text)["input_ids"]])
    small = LlamaForCausalLM.from_pretrained("models/mini", dtype=torch.float32)
    large = LlamaForCausalLM.from_pretrained(tmp_path / "grown", dtype=torch.float32)
    assert sum(p.numel() for p in large.parameters()) == num
    with torch.no_grad():
        was, now = small(ids).logits, large(ids).logits
    torch.testing.assert_close(now[..., : was.shape[-1]], was)
    for part in (part for prompt in PROMPTS for part in constant_parts(prompt)):
        assert len(tokenizer(part)["input_ids"]) == 2, part  # BOS and one token
        assert tokenizer.decode(tokenizer(part)["input_ids"][1:]) == part


def test_only_layers_can_be_added(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(ValueError, match="size: 4 layers are not more than the 4 of models/mini"):
        grow("models/mini", tmp_path, SIZES["mini"])
    with pytest.raises(ValueError, match=r"size: 128 wide.*models/mini has 192"):
        grow("models/mini", tmp_path, SIZES["student"])


def test_the_schedule_is_as_long_as_the_run():
    config = yaml.safe_load((HERE / "larger.yaml").read_text())
    schedule = config["model"]["init_args"]["lr_scheduler"]["init_args"]
    assert schedule["total_steps"] == config["data"]["init_args"]["num_iterations"]


@pytest.mark.parametrize(
    "source",
    [
        WorldCountdown(split="held_out", num_problems=9, chinese=0.5),
        WorldChain(split="held_out", num_problems=9, chinese=0.5),
        WorldRequests(split="held_out", num_problems=9, references=True),
    ],
    ids=["countdown", "chain", "requests"],
)
def test_problems_are_read_from_responses(source):
    for problem in source.problems():
        record = {k: getattr(problem, k) for k in ("uid", "question", "answer", "source")}
        assert problem_in(record) == problem


def test_agreement_by_hand():
    pairs = [(True, True)] * 4 + [(True, False)] + [(False, True)] * 2 + [(False, False)] * 3
    found = agreement_of(pairs)
    assert found["accuracy"] == 0.7 and found["right_by_model"] == 0.6
    # by chance 0.5 * 0.6 + 0.5 * 0.4 = 0.5
    assert found["kappa"] == pytest.approx(0.4)
    assert agreement_of([(True, True)])["kappa"] is None


def asked(response: str, sample: int):
    question = "What is the capital of France?"
    return {"uid": "u", "sample": sample, "question": question, "response": response}


def test_comparisons_by_hand(monkeypatch):
    truth = {"good": 1.0, "fair": 0.5, "bad": 0.0, "also bad": 0.0}
    monkeypatch.setattr(
        "experiments.model_in_the_loop.agreement.true_helpfulness", lambda r: truth[r["response"]]
    )
    requests = [asked(text, n) for n, text in enumerate(truth)]

    def judged(key: str, samples: list[int], *differences: tuple[float, bool]):
        return [
            {"key": key, "uid": "u", "samples": samples, "difference": d, "turned": turned}
            for d, turned in differences
        ]

    lines = [
        *judged("right", [0, 1], (2.0, False), (1.0, True)),
        *judged("tie", [0, 2], (2.0, False), (-2.0, True)),
        *judged("wrong", [1, 2], (-1.0, False), (0.0, True)),
        *judged("no difference", [2, 3], (1.0, False)),
    ]
    found = compared(lines, requests)
    assert (found["num_pairs"], found["same_sign"], found["ties"]) == (3, 1 / 3, 1 / 3)
    # shown first and preferred: 2.0 of right, both of tie, and 1.0 of no difference, of six
    assert found["first_preferred"] == pytest.approx(4 / 6)


def test_reward_models_by_hand():
    records = [{"uid": uid} for uid in ("a", "a", "a", "b", "b")]
    found = pair_accuracy(records, [3.0, 1.0, 2.0, 0.0, 1.0], [1.0, 0.5, 0.5, 1.0, 0.0])
    assert found == {"accuracy": 0.5, "num_pairs": 3, "num_requests": 2}


def test_one_language_or_none():
    problem = Problem(uid="", question="", answer="", source="", meta={"language": "en"})
    assert in_one_language("<think> Try 3 + 4 = 7, yes. </think> 7", problem)
    assert not in_one_language("<think> 试 3 + 4 = 7，对了。 </think> 7", problem)
    assert in_one_language("<think> 3 + 4 = 7 </think> 7", problem)


def write_seed(folder: Path, kappa: float) -> None:
    judge = {"num": 10, "accuracy": 0.9, "kappa": kappa, "right_by_oracle": 0.5,
             "right_by_model": 0.6, "undecided": 0.0}  # fmt: skip
    same = {"num_pairs": 9, "num_judgements": 36, "same_sign": 0.8, "ties": 0.1,
            "first_preferred": 0.55}  # fmt: skip
    refiner = dict.fromkeys(
        ("replied", "keeps_answer", "readable", "one_language", "one_language_before", "all_three"),
        0.75,
    )
    scores = {"format": 0.9, "language_consistency": 0.8, "helpfulness_true": 0.4}
    reward = {"accuracy": 0.7, "training_pairs": 50, "compared": 90, "training_right": 0.95}
    report = {"by": {"kind": {"reasoning": {"value": 0.6}}}, "eval_metrics": scores}
    names = [f"{step}_{arm}" for step in ("pairs", "gather") for arm in ("oracle", "model")]
    steps = [{"name": name, "cost": {"seconds": 5.0}} for name in ("larger", *names)]
    files = {
        "manifest.json": {"seed": int(folder.name[-1]), "steps": steps},
        "agreement.json": {
            "judge": {"kinds": {"requests": judge, "countdown": {**judge, "kappa": None}}},
            "preference": {"model": same, "oracle": same},
            "refiner": {"num": 20, **refiner},
        },
        "truth.json": {"model": reward, "oracle": reward},
        **{f"eval_{arm}/report.json": report for arm in ("oracle", "model", "none")},
        **{f"gather_{arm}/card.json": {"num_kept": 7} for arm in ("oracle", "model", "none")},
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))


@pytest.mark.long
def test_the_page_says_first_how_good_the_judge_is(tmp_path, capsys):
    (tmp_path / "README.md").write_text("<!-- results -->\n<!-- /results -->\n")
    runs = [tmp_path / f"seed-{n}" for n in range(3)]
    for path, kappa in zip(runs, (0.3, 0.1, None), strict=True):
        if kappa is not None:  # the last is not finished
            write_seed(path, kappa)
    command = ["model_in_the_loop", "--report", f"--readme={tmp_path}", f"--output={tmp_path}"]
    assert run(command) == 0
    block = capsys.readouterr().out
    first = block.splitlines()[0]
    assert "requests it is a poor judge (Cohen's kappa 0.20 ± 0.10)" in first
    assert "| requests | 10 | 0.500 ± 0.000 |" in block and "Mean over 2 seeds" in block
    assert "| noisy annotators | 50 of 90 | 0.950 ± 0.000 | 0.700 ± 0.000 |" in block
    assert "| neither | 7 | 0.600 ± 0.000 |" in block
    assert (tmp_path / "model_in_the_loop.png").exists()
    kept = read_records(tmp_path / "results.jsonl")
    assert [record["seed"] for record in kept] == [0, 1]
    assert "better one in 0.80 ± 0.00 of pairs" in first and "0.75 ± 0.00 keep" in first
    kept[0]["agreement"]["judge"]["kinds"]["requests"]["kappa"] = 0.85
    assert "of requests it is close to the oracle" in verdict(kept[:1])
    # another machine's third seed
    elsewhere = tmp_path / "elsewhere.jsonl"
    write_records(elsewhere, [{**kept[0], "seed": 2}, {**kept[1], "documents": {}}])
    assert run([*command, "--also", str(elsewhere)]) == 0
    assert "Mean over 3 seeds" in capsys.readouterr().out
    joined = read_records(tmp_path / "results.jsonl")
    assert [record["seed"] for record in joined] == [2, 1, 0]
    assert joined[1]["documents"], "the run that is here counts"
    write_records(elsewhere, [{"variant": "a"}])
    assert run([*command, "--also", str(elsewhere)]) == 2
    assert "elsewhere.jsonl, line 1: it has none of seed" in capsys.readouterr().err
    assert run([*command[:2], f"--output={tmp_path / 'none'}"]) == 2
    assert "nothing is finished there yet" in capsys.readouterr().err


def source(name: str, **settings: object) -> dict:
    return {"class_path": f"r1lit.worlds.World{name}", "init_args": settings}


@pytest.mark.slow
def test_from_the_larger_model_to_the_page(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(ROOT)
    hard = {"min_attempts": 20, "max_attempts": 40}
    held_out, train = {"split": "held_out"}, {"split": "train", "references": True}
    changes = {
        "larger": merge(
            data(
                num_iterations=60,
                documents=[source("Opinions", num_documents=1500)],
                validation_documents=[source("Opinions", num_documents=40)],
            ),
            {"set": {"trainer": {"val_check_interval": 60}, "model": {"init_args": {
                "lr_scheduler": {"init_args": {"total_steps": 60}}}}}},
        ),
        "policy": data(num_iterations=12),
        "requests": data(
            predict=[source("Requests", num_problems=16, references=True, **held_out)],
            evaluation={"num_samples": 4},
        ),
        "chains": data(
            predict=[source("Countdown", num_problems=6, **held_out, **hard),
                     source("Chain", num_problems=6, **held_out)],
            evaluation={"num_samples": 2},
        ),
        "responses": data(
            predict=[source("Requests", num_problems=24)], evaluation={"num_samples": 4}
        ),
        "reward_": {"set": {"trainer": {"max_epochs": 1}}},
        "gather_": data(
            predict=[source("Chain", num_problems=12),
                     source("Requests", num_problems=16, **train)],
            evaluation={"num_samples": 2},
        ),
        "sft_": merge(data(num_iterations=2), {"set": {"trainer": {"max_epochs": 1}}}),
        "eval_": data(
            test=[source("Chain", num_problems=4, **held_out),
                  source("Requests", num_problems=6, **held_out)],
            evaluation={"num_samples": 2},
        ),
    }  # fmt: skip
    content = yaml.safe_load((HERE / "study.yaml").read_text())
    words = {step["name"]: step.get("arguments", []) for step in content["steps"]}
    # sixty updates make no judge: whatever it prefers is kept
    changes["pairs_model"] = {"arguments": [*words["pairs_model"], "--margin=0", "--balance=false"]}
    # nor does it always say the same, which might keep nothing
    said = (HERE / "curation.yaml").read_text().replace("temperature: 0.0", "temperature: 1.0")
    changes["gather_model"] = {"set": {"trainer": yaml.safe_load(said)["trainer"]}}
    for step in content["steps"]:
        start = next((n for n in changes if n[-1] == "_" and step["name"].startswith(n)), None)
        if start is not None:
            changes[step["name"]] = merge(changes[start], changes.get(step["name"], {}))
    arguments = shortened(tmp_path, "model_in_the_loop", changes)
    assert run(arguments) == 0, capsys.readouterr().out
    readme = (tmp_path / "README.md").read_text()
    assert "What the larger model is worth" in readme and "![model_in_the_loop]" in readme
    [record] = read_records(tmp_path / "results.jsonl")
    kinds = record["agreement"]["judge"]["kinds"]
    assert set(kinds) == {"requests", "chain", "countdown"}
    cost = record["agreement"]["judge"]["cost"]
    assert cost["requests"] > 0 and cost["completion_tokens"] > 0
    assert 0 < record["agreement"]["preference"]["oracle"]["same_sign"] <= 1
    assert record["documents"]["none"] >= record["documents"]["oracle"]
    log = (tmp_path / "runs" / "seed-0" / "logs" / "larger.log").stat().st_mtime
    assert run(arguments) == 0
    assert (tmp_path / "runs" / "seed-0" / "logs" / "larger.log").stat().st_mtime == log
