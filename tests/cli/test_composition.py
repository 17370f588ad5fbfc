"""Composing YAML means one thing, through the real command line and the shipped configs."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import ROOT, data, model

from r1lit.cli import main
from r1lit.cli.composition import MODEL_KEYS, as_mapping, compose
from r1lit.policy import ModelSource

CONFIGS = ROOT / "configs"
ZERO = CONFIGS / "r1_zero.yaml"
GSM8K = CONFIGS / "data" / "gsm8k.yaml"
OBJECTIVE = "--model.init_args.objective"
DAPO = "r1lit.objectives.DAPO"


def test_the_keys_of_a_model_are_the_fields_of_its_source():
    assert {f.name for f in fields(ModelSource) if f.init} == MODEL_KEYS


@pytest.mark.parametrize(
    ("keys", "title"),
    [
        (["--data.test.path", "my/sums.jsonl"], "sums"),  # own problems are no GSM8K
        (["--data.init_args.test.path=sums.jsonl"], "sums"),
        (["--data.test.path", "my/sums.jsonl", "--data.test.source", "mine"], "mine"),
        (["--data.test.path", "openai/gsm8k"], "gsm8k"),
        (["--data.test.split", "train"], "gsm8k"),
    ],
)
def test_a_table_of_the_command_line_is_reported_by_its_own_name(keys, title):
    args = compose(["test", "-c", "r1lit:eval/gsm8k.yaml", *keys])
    config = yaml.safe_load(args[2])
    assert config["data"]["init_args"]["test"][0]["init_args"]["source"] == title


def arguments(tmp_path: Path, given: tuple[Path | dict[str, Any] | str, ...]) -> list[str]:
    args: list[str] = []
    for number, item in enumerate(given):
        if isinstance(item, dict):
            path = tmp_path / f"{number}.yaml"
            path.write_text(yaml.safe_dump(item))
            item = path
        args += ["-c", str(item)] if isinstance(item, Path) else [item]
    return args


@pytest.fixture
def merged(tmp_path):
    """Return what files, mappings and keys are merged to, before the parser adds defaults."""
    return lambda *given: as_mapping(compose(["fit", *arguments(tmp_path, given)]))


@pytest.fixture
def composed(capsys, tmp_path):
    """Return the configuration that the command line makes of them."""

    def whole(*given: Path | dict[str, Any] | str) -> dict[str, Any]:
        with pytest.raises(SystemExit) as exit_:
            main(["fit", *arguments(tmp_path, given), "--print_config"])
        out, err = capsys.readouterr()
        assert exit_.value.code in (0, None), err
        return yaml.safe_load(out)

    return whole


def objective_of(config: dict[str, Any]) -> dict[str, Any]:
    return config["model"]["init_args"]["objective"]


@pytest.mark.parametrize(
    "change",
    [
        model(objective={"class_path": DAPO}),
        model(objective=DAPO),
        f"{OBJECTIVE}={DAPO}",
        f"{OBJECTIVE}=DAPO",
        f"{OBJECTIVE}.class_path={DAPO}",
        f"--model.objective={DAPO}",
        f'{OBJECTIVE}={{"class_path": "{DAPO}"}}',
    ],
    ids=str,
)
def test_another_class_has_no_arguments_of_the_one_before(merged, change):
    objective = objective_of(merged(ZERO, change))
    assert objective["class_path"].endswith("DAPO") and not objective.keys() - {"class_path"}


def test_another_class_starts_from_its_own_defaults(composed):
    """GRPO's beta of 0.001 is not DAPO's."""
    objective = objective_of(composed(ZERO, f"{OBJECTIVE}=DAPO"))
    assert objective["class_path"] == DAPO
    assert objective["init_args"]["beta"] == 0.0
    assert objective["init_args"]["epsilon_high"] == 0.28


def test_another_class_and_its_arguments_may_come_apart(composed):
    beta = f"{OBJECTIVE}.init_args.beta=0.5"
    for given in ([model(objective={"class_path": DAPO}), beta], [f"{OBJECTIVE}={DAPO}", beta]):
        objective = objective_of(composed(ZERO, *given))
        assert objective["init_args"]["beta"] == 0.5
        assert objective["init_args"]["epsilon_low"] == 0.2


@pytest.mark.parametrize(
    "change",
    [
        model(objective={"class_path": "r1lit.objectives.GRPO", "init_args": {"epsilon": 3.0}}),
        model(objective={"class_path": "GRPO", "init_args": {"epsilon": 3.0}}),
        model(
            objective={
                "class_path": "r1lit.objectives.grpo.GRPO",
                "init_args": {"epsilon": 3},
            }
        ),
        model(objective={"init_args": {"epsilon": 3.0}}),
        model(objective={"epsilon": 3.0}),
        f"{OBJECTIVE}.init_args.epsilon=3.0",
        f"{OBJECTIVE}.epsilon=3.0",
    ],
    ids=str,
)
def test_the_same_class_keeps_what_is_not_named(merged, change):
    objective = objective_of(merged(ZERO, change))
    assert float(objective["init_args"]["epsilon"]) == 3.0
    assert objective["init_args"]["beta"] == 0.001


@pytest.mark.long
def test_naming_the_same_class_again_changes_nothing(composed):
    assert composed(ZERO, model(objective="GRPO")) == composed(ZERO)


HELD = {"dtype": "bfloat16"}


@pytest.mark.parametrize(
    "given",
    [
        [model(policy="models/mini"), model(policy=HELD)],
        [model(policy=HELD), model(policy="models/mini")],
        [model(policy={"path": "x", **HELD}), model(policy="models/mini")],
        [model(policy={"path": "x", **HELD}), "--model.policy=models/mini"],
        [model(policy={"path": "x", **HELD}), "--model.init_args.policy.path=models/mini"],
        [model(policy="models/mini"), "--model.policy.dtype=bfloat16"],
        [model(policy="models/mini"), '--model.policy={"dtype": "bfloat16"}'],
    ],
    ids=str,
)
def test_a_path_and_how_a_model_is_held_add_up(merged, given):
    policy = merged(ZERO, *given)["model"]["init_args"]["policy"]
    assert policy == {"path": "models/mini", **HELD}


def test_a_plain_path_stays_one(merged):
    for given in (model(policy="models/mini"), "--model.policy=models/mini"):
        assert merged(ZERO, given)["model"]["init_args"]["policy"] == "models/mini"


@pytest.mark.long
def test_an_adapter_s_settings_are_reached_on_the_command_line(composed):
    lora = {"class_path": "peft.LoraConfig", "init_args": {"r": 4}}
    given = [model(policy={"adapter": lora}), "--model.policy.adapter.init_args.r=2"]
    policy = composed(ZERO, *given)["model"]["init_args"]["policy"]
    assert policy["adapter"]["init_args"]["r"] == 2 and policy["path"].startswith("Qwen/")


@pytest.mark.long
def test_a_list_replaces_the_list(composed):
    """An own table has not the pattern of the preset's."""
    own = [{"class_path": "r1lit.data.TableProblems", "init_args": {"path": "own.jsonl"}}]
    written = f"--data.train={json.dumps(own)}"
    for change in (data(train=own), written):
        (table,) = composed(GSM8K, ZERO, change)["data"]["init_args"]["train"]
        assert table["init_args"]["path"] == "own.jsonl"
        assert table["init_args"]["answer_pattern"] == "" == table["init_args"]["answer_remove"]


def test_one_key_of_a_list_s_item_keeps_the_others(merged):
    (table,) = merged(GSM8K, ZERO, "--data.train.path=own.jsonl")["data"]["init_args"]["train"]
    assert table["init_args"]["path"] == "own.jsonl"
    assert table["init_args"]["answer_remove"] == ","


def test_a_key_of_a_function_that_ends_a_list_is_its_argument(merged):
    flags = "--model.rewards+=mine.brevity", "--model.rewards.limit=5", "--model.rewards.weight=0.5"
    *_, last = merged(ZERO, *flags)["model"]["init_args"]["rewards"]
    assert last == {"class_path": "mine.brevity", "init_args": {"limit": "5", "weight": "0.5"}}


def test_plus_appends_in_files_and_on_the_command_line(merged):
    callbacks = len(merged(ZERO)["trainer"]["callbacks"])
    ours = {"trainer": {"callbacks+": [{"class_path": "r1lit.callbacks.GroupHealth"}]}}
    assert len(merged(ZERO, ours)["trainer"]["callbacks"]) == callbacks + 1
    assert len(merged(ours, ours)["trainer"]["callbacks+"]) == 2
    written = "--trainer.callbacks+=r1lit.callbacks.GroupHealth"
    assert len(merged(ZERO, ours, written)["trainer"]["callbacks"]) == callbacks + 2


def test_a_preset_over_another_preset_keeps_no_arguments_of_its_metrics(composed):
    """R1-Zero's answers have tags; the metric of the stages that have none is replaced."""
    names = [CONFIGS / "r1" / name for name in ("eval.yaml", "eval_zero.yaml")]
    metrics = composed(*names)["model"]["init_args"]["eval_metrics"]
    assert metrics[0]["init_args"]["answer_tags"] is True


@pytest.mark.long
@pytest.mark.parametrize(
    ("group", "key", "value"), [("rollout", "group_size", 8), ("packing", "loss_on", "all")]
)
def test_one_key_of_a_group_keeps_the_others(composed, group, key, value):
    before = composed(GSM8K, ZERO)["data"]["init_args"]
    for change in (
        data(**{group: {key: value}}),
        f"--data.init_args.{group}.{key}={value}",
        f"--data.{group}.{key}={value}",
    ):
        after = composed(GSM8K, ZERO, change)["data"]["init_args"]
        assert after == before | {group: before[group] | {key: value}}


def test_keys_on_the_command_line_win_wherever_they_stand(merged):
    given = "--data.init_args.rollout.group_size=8"
    assert merged(given, GSM8K, ZERO) == merged(GSM8K, ZERO, given)


def test_numbers_and_texts_stay_what_they_are(composed, tmp_path):
    path = tmp_path / "rate.yaml"
    path.write_text(
        "model: {init_args: {optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 1e-5}}}}\n"
        "data: {init_args: {prompts: {template: '1e-5 {question}'}}}\n"
    )
    config = composed(ZERO, path)
    assert config["model"]["init_args"]["optimizer"]["init_args"]["lr"] == 1e-5
    assert config["model"]["init_args"]["optimizer"]["init_args"]["betas"] == [0.9, 0.95]
    assert config["data"]["init_args"]["prompts"]["template"] == "1e-5 {question}"


def test_another_optimizer_has_none_of_the_default_one_s_settings(composed):
    """AdamW, with a weight decay of its own, is taken where none is named."""
    sgd = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}
    config = composed(ZERO, GSM8K, {"model": {"init_args": {"optimizer": sgd}}})
    assert config["model"]["init_args"]["optimizer"]["init_args"]["weight_decay"] == 0
