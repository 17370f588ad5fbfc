"""RewardModule through the command line, on a small random policy."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from metrics_page import MEASURED, assert_documented, normalise, owned_by
from safetensors.torch import load_file
from test_resume import assert_equal, run_and_kill
from tiny import ROOT, data, merge, model
from tiny_reward import LABELS, PAIRS, reward_config, write_labels, write_pairs

from r1lit.batches import Problem
from r1lit.cli import main
from r1lit.data import PreferenceDataModule
from r1lit.policy import load_reward_config, load_reward_model, load_tokenizer
from r1lit.policy.scalar_head import normalised, score_rows
from r1lit.rewards import ProcessReward
from r1lit.search import PartialResponse, Query, RewardScorer


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write_pairs(tmp_path / "pairs.jsonl")


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    return write_labels(tmp_path / "labels.jsonl")


def last(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())[-1]


def losses(run: Path) -> list[float]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["train/loss"] for line in lines]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, policy: Path) -> tuple[Any, Path, str]:
    """A run on pairs with reference responses: its command line, its folder, what it printed."""
    folder = tmp_path_factory.mktemp("trained")
    table, other = (write_pairs(folder / f"{n}.jsonl", num=n) for n in (40, 6))
    reference = {"reference": [{**PAIRS, "init_args": {"path": str(other)}}]}
    with redirect_stdout(io.StringIO()) as said:
        cli = main(
            ["fit", "-c", str(reward_config(folder / "run", policy, table, data(**reference)))]
        )
    return cli, folder / "run", said.getvalue()


@pytest.fixture(scope="module")
def trained_on_labels(tmp_path_factory: pytest.TempPathFactory, policy: Path) -> tuple[Any, Path]:
    run = tmp_path_factory.mktemp("labels") / "run"
    table = write_labels(run.parent / "labels.jsonl")
    return main(["fit", "-c", str(reward_config(run, policy, table, pairs=False))]), run


def test_pairs_are_learnt_and_reported(trained) -> None:
    cli, run, said = trained
    assert "30 pairs in the training set" in said
    seen = losses(run)
    assert seen[0] == pytest.approx(0.693147, abs=1e-5)  # the head starts at zero
    assert seen[-1] < 0.3
    report = last(run)["reward_model"]
    assert report["num_examples"] == 10 and report["accuracy"] == 1.0
    assert report["num_chosen_longer"] + report["num_chosen_shorter"] == 10
    assert report["above_length_baseline"] == 1 - report["length_baseline_accuracy"]
    assert sum(row["count"] for row in report["reliability"]) == 20
    logged = {key for key in cli.trainer.callback_metrics if key.startswith("val/reward_model/")}
    assert {"val/reward_model/accuracy", "val/reward_model/calibration_error"} <= logged


def test_labels_are_learnt_and_reported(trained_on_labels) -> None:
    report = last(trained_on_labels[1])["reward_model"]
    assert report["auroc"] == 1.0 and report["accuracy"] == 1.0
    assert report["num_examples"] == 10
    seen = losses(trained_on_labels[1])
    assert seen[0] == pytest.approx(0.693147, abs=1e-5) and seen[-1] < 0.4


def test_runs_log_their_page_and_nothing_else(
    trained, trained_on_labels, tmp_path: Path, policy: Path, pairs: Path, labels: Path
) -> None:
    logged = set(trained[0].trainer.callback_metrics)
    logged |= set(trained_on_labels[0].trainer.callback_metrics)
    for table in (pairs, labels):
        config = reward_config(tmp_path / table.stem, policy, table, pairs=table == pairs)
        logged |= set(main(["test", "-c", str(config)]).trainer.callback_metrics)
    assert_documented(logged)
    missing = owned_by("RewardModule") - {normalise(key) for key in logged}
    assert not missing, missing


def test_the_exported_rewards_have_zero_mean_over_the_reference(trained) -> None:
    cli, run, _ = trained
    exported = str(run / "policy")
    config = load_reward_config(exported)
    assert config.reward_objective == "BradleyTerry"
    assert (config.reward_template, config.reward_score_on) == ("question_answer", "response")
    assert abs(config.reward_mean) > 1e-4
    rows = [row.tolist() for e in cli.datamodule.examples["reference"] for row in e.rows]
    assert len(rows) == 12
    rewards = score_rows(load_reward_model(exported, pad_id=0).eval(), rows, 256)
    assert normalised(config, rewards).mean().item() == pytest.approx(0.0, abs=1e-5)
    assert rewards.std(correction=0).item() == pytest.approx(config.reward_std, rel=1e-4)


def test_a_large_reference_is_normalised_on_both_rows_of_its_pairs(
    tmp_path: Path, policy: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("r1lit.modules.reward.REFERENCE_ROWS", 30)
    cli = main(["fit", "-c", str(reward_config(tmp_path / "run", policy, pairs))])
    examples = cli.datamodule.examples["train"]
    assert len(examples) == 30, "every other row is read: of pairs the chosen ones would be alone"
    rows = [row.tolist() for example in examples[::2] for row in example.rows]
    exported = load_reward_model(str(tmp_path / "run" / "policy"), pad_id=0).eval()
    reward_NK = score_rows(exported, rows, 256).view(-1, 2)
    chosen, rejected = reward_NK.mean(0).tolist()
    assert chosen - rejected > 0.1
    mean = exported.config.reward_mean
    assert mean == pytest.approx((chosen + rejected) / 2, abs=1e-4)


def test_micro_batches_do_not_change_the_run(tmp_path: Path, policy: Path, pairs: Path) -> None:
    for name, tokens in (("one", 1024), ("many", 1)):
        change = model(micro_batch_tokens=tokens) | data(num_iterations=4)
        main(["fit", "-c", str(reward_config(tmp_path / name, policy, pairs, change))])
    one, many = (load_file(tmp_path / n / "policy" / "model.safetensors") for n in ("one", "many"))
    assert one.keys() == many.keys() and "score.weight" in one
    for name, value in one.items():
        torch.testing.assert_close(value, many[name], rtol=1e-2, atol=1e-3)
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "many"), rel=1e-3)


def everything(run: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    evaluations = json.loads((run / "summary.json").read_text())
    for record in [*lines, *evaluations]:
        for key in [k for k in record if k == "seconds" or k.startswith(MEASURED)]:
            del record[key]
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=False)
    return {
        "metrics": lines,
        "evaluations": evaluations,
        "weights": state["state_dict"],
        "optimizer": state["optimizer_states"][0]["state"],
        "scheduler": state["lr_schedulers"],
        "exported": load_file(run / "policy" / "model.safetensors"),
        "config": json.loads((run / "policy" / "config.json").read_text()),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", [2, 3, 7])
def test_killed_and_resumed_is_bit_equal(
    tmp_path: Path, policy: Path, pairs: Path, kill_at: int
) -> None:
    """Killed before an iteration is saved; at 3 and 7 an evaluation is due as well."""
    change = data(train_batch_size=4)
    whole, broken = (
        reward_config(tmp_path / n, policy, pairs, change) for n in ("whole", "broken")
    )
    main(["fit", "-c", str(whole)])
    run_and_kill(broken, kill_at, tmp_path)
    main(["fit", "-c", str(broken), "--ckpt_path", "last"])
    assert_equal(everything(tmp_path / "whole"), everything(tmp_path / "broken"))
    # once more changes nothing: the export of a finished run is made again, with its mean
    before = everything(tmp_path / "broken")
    main(["fit", "-c", str(broken), "--ckpt_path", "last"])
    assert_equal(everything(tmp_path / "broken"), before)
    assert before["config"]["reward_mean"] is not None


def assert_close(found: Any, wanted: Any) -> None:
    """Check two reports: numbers within rounding, all else equal."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key, value in wanted.items():
            assert_close(found[key], value)
    elif isinstance(wanted, list):
        for one, other in zip(found, wanted, strict=True):
            assert_close(one, other)
    else:
        number = isinstance(wanted, float)
        assert found == (pytest.approx(wanted, rel=1e-4) if number else wanted)


def test_a_trained_model_is_evaluated_alone(
    trained, tmp_path: Path, policy: Path, pairs: Path
) -> None:
    after = last(trained[1])["reward_model"]
    change = model(policy=str(trained[1] / "policy"))
    again = str(reward_config(tmp_path / "again", policy, pairs, change))
    main(["validate", "-c", again])
    found = json.loads((tmp_path / "again" / "validate.json").read_text())
    assert_close(found["reward_model"], after)
    table = write_pairs(tmp_path / "test.jsonl", num=46)
    rows = table.read_text().splitlines()[40:]
    table.write_text("\n".join(rows) + "\n")
    test = data(test=[{**PAIRS, "init_args": {"path": str(table)}}])
    main(["test", "-c", str(reward_config(tmp_path / "test", policy, pairs, merge(change, test)))])
    found = json.loads((tmp_path / "test" / "test.json").read_text())
    assert found["reward_model"]["num_examples"] == 6 and found["loss"] > 0


def test_the_objective_must_fit_the_data(tmp_path: Path, policy: Path, labels: Path) -> None:
    source = {"train": [{**LABELS, "init_args": {"path": str(labels)}}]}
    config = reward_config(tmp_path / "run", policy, labels, data(**source))
    with pytest.raises(ValueError, match="BradleyTerry learns from pairs, and the data has labell"):
        main(["fit", "-c", str(config)])


def test_another_seed_is_measured_on_the_same_examples(
    trained, tmp_path: Path, policy: Path, pairs: Path
) -> None:
    change = merge({"seed_everything": 1}, data(num_iterations=1))
    config = reward_config(tmp_path / "other", policy, pairs, change)
    cli = main(["fit", "-c", str(config), "--trainer.val_check_interval", "1"])
    assert isinstance(cli.datamodule, PreferenceDataModule)
    one, other = ({e.group for e in c.datamodule.examples["validation"]} for c in (trained[0], cli))
    assert one == other
    assert losses(tmp_path / "other")[0] == pytest.approx(losses(trained[1])[0])


# Process reward models through the command line: labelled steps in, a scorer out


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
