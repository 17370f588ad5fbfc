"""Process reward models through the command line: labelled steps in, a scorer out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from metrics_page import assert_documented, normalise, owned_by
from test_reward_module import everything, last, losses
from tiny import ROOT, data, model
from tiny_reward import PAIRS, reward_config, write_pairs

from r1lit.batches import Problem
from r1lit.cli import main
from r1lit.policy import load_reward_config, load_reward_model, load_tokenizer
from r1lit.rewards import ProcessReward
from r1lit.search import PartialResponse, Query, RewardScorer

REAL = ROOT / ".." / "shared" / "data" / "process_bench.jsonl.gz"


def write_steps(path: Path, num: int = 40) -> Path:
    """Three steps each; one of every other solution, the first or the second, holds an x."""
    rows = []
    for n in range(num):
        wrong = n % 2 and (n // 2) % 2
        steps = [f"take {n}", "add ooo", "so ooo"]
        if n % 2:
            steps[wrong] = f"take xxx {n}"
        label = int(wrong) if n % 2 else -1
        rows.append({"problem": f"Give me {n}.", "steps": steps, "label": label})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def process_config(run: Path, policy: Path, change: dict[str, Any] | None = None) -> Path:
    """The YAML of a reward model's run, with labelled steps."""
    table = write_steps(run.parent / f"{run.name}.jsonl")
    path = reward_config(run, policy, table, change, pairs=False)
    config = yaml.safe_load(path.read_text())
    config["model"]["class_path"] = "r1lit.modules.ProcessRewardModule"
    del config["model"]["init_args"]["objective"]
    source = {"class_path": "r1lit.data.TableSteps", "init_args": {"path": str(table)}}
    config["data"]["init_args"]["train"] = [source]
    path.write_text(yaml.safe_dump(config))
    return path


def test_steps_are_learnt_reported_and_scored(tmp_path: Path, policy: Path) -> None:
    run = tmp_path / "run"
    config = process_config(run, policy, data(num_iterations=16))
    cli = main(["fit", "-c", str(config)])
    seen = losses(run)
    assert seen[0] == pytest.approx(0.693147, abs=1e-5) and seen[-1] < 0.3
    report = last(run)["reward_model"]
    assert report["num_examples"] == 10 and report["auroc"] == 1.0
    assert report["f1"] == 1.0 and report["accuracy"] == 1.0
    logged = set(cli.trainer.callback_metrics)
    assert_documented(logged)
    missing = owned_by("ProcessRewardModule") - {normalise(key) for key in logged}
    assert not missing, missing
    # the export scores the steps of responses, cut and templated as in training
    exported = str(run / "policy")
    assert load_reward_config(exported).process_separators == ["\n\n"]
    problem = Problem(uid="p", question="Give me 5.", answer="", source="s")
    query = Query(problem=problem, prompt=(1,))
    texts = ["take 5\n\n", "take 5\n\ntake xxx 5\n\n"]
    responses = [PartialResponse(query=query, text=text) for text in texts]
    kinds = ("min", "product", "last")
    made = {a: RewardScorer(ProcessReward(exported, aggregate=a)) for a in kinds}
    found = {name: scorer.score(responses) for name, scorer in made.items()}
    # by hand: the model at the token of each separator
    tokenizer, scalar = load_tokenizer(exported), load_reward_model(exported, pad_id=0).eval()
    prompt = tokenizer("Question: Give me 5.\nAnswer:")["input_ids"]
    rows = [[*prompt, *tokenizer(t, add_special_tokens=False)["input_ids"]] for t in texts]
    with torch.no_grad():
        one, two = (float(scalar([row])[0].sigmoid()) for row in rows)
    assert one > 0.5 > two
    assert found["last"] == pytest.approx([one, two], abs=1e-5)
    assert found["min"] == pytest.approx([one, two], abs=1e-5)
    assert found["product"] == pytest.approx([one, one * two], abs=1e-5)


def test_micro_batches_do_not_change_the_update(tmp_path: Path, policy: Path) -> None:
    for name, tokens in (("one", 1024), ("many", 1)):
        change = model(micro_batch_tokens=tokens) | data(num_iterations=4)
        main(["fit", "-c", str(process_config(tmp_path / name, policy, change))])
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "many"), rel=1e-3)
    one, many = (everything(tmp_path / name)["exported"] for name in ("one", "many"))
    for name, value in one.items():
        torch.testing.assert_close(value, many[name], rtol=1e-2, atol=1e-3)


def test_other_data_is_refused(tmp_path: Path, policy: Path) -> None:
    config = process_config(tmp_path / "run", policy)
    content = yaml.safe_load(config.read_text())
    pairs = {**PAIRS, "init_args": {"path": str(write_pairs(tmp_path / "pairs.jsonl"))}}
    content["data"]["init_args"]["train"] = [pairs]
    config.write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match="ProcessRewardModule learns from labelled steps"):
        main(["fit", "-c", str(config)])
    with pytest.raises(ValueError, match="holds a language model, not a reward model"):
        ProcessReward(str(policy))


@pytest.mark.slow
@pytest.mark.skipif(not REAL.exists(), reason="needs ../shared/data")
def test_the_preset_trains_on_real_labels(tmp_path: Path) -> None:
    small = tmp_path / "small.yaml"
    rows = {"path": str(REAL), "skip": 160, "limit": 80}  # the first 200 all have an error
    source = {"class_path": "r1lit.data.TableSteps", "init_args": rows}
    change = {"train": [source], "num_iterations": 2, "train_batch_size": 8}
    trainer = {"max_epochs": 1, "enable_model_summary": False}
    small.write_text(yaml.safe_dump({"data": {"init_args": change}, "trainer": trainer}))
    preset = ROOT / "configs" / "reward" / "process.yaml"
    main(["fit", "-c", str(preset), "-c", str(small), "--run", str(tmp_path / "run")])
    report = last(tmp_path / "run")["reward_model"]
    assert report["num_with_errors"] > 0 and 0 <= report["f1"] <= report["best_f1"] <= 1
