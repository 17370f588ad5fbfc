"""Every shipped YAML is read by the real command line, and every recipe really runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import ROOT, merge, no_figures, save_policy

from r1lit.cli import main

CONFIGS = ROOT / "configs"
SHIPPED = {str(p.relative_to(CONFIGS)) for p in CONFIGS.rglob("*.yaml")}
DATA = ("gsm8k", "math", "countdown")
HARDWARE = ("cpu", "one_gpu", "ddp")
LOGGERS = ("tensorboard", "csv", "wandb", "mlflow")
NODES = ("hardware/fsdp2.yaml", "hardware/multi_node.yaml")
SERVED = ("hardware/fsdp2_bf16.yaml", "hardware/four_nodes.yaml", "hardware/vllm_servers.yaml")
EVALUATIONS = sorted(p.name for p in (CONFIGS / "eval").glob("*.yaml"))
CURATION = (
    "cold_start/few_shot",
    "cold_start/direct",
    "cold_start/from_zero",
    "cold_start/simple_math",
    "rejection_sampling",
    "sft_800k/other",
    "responses",
)
FULL = sorted(p.name for p in (CONFIGS / "r1" / "full").glob("*.yaml") if p.stem not in CURATION)
STUDENTS = {  # learning rates of Nature 645:633, supplement
    "qwen2.5_math_1.5b": ("Qwen/Qwen2.5-Math-1.5B", 1e-4),
    "qwen2.5_math_7b": ("Qwen/Qwen2.5-Math-7B", 8e-5),
    "qwen2.5_14b": ("Qwen/Qwen2.5-14B", 7e-5),
    "qwen2.5_32b": ("Qwen/Qwen2.5-32B", 6e-5),
    "llama3.1_8b": ("meta-llama/Llama-3.1-8B", 5e-5),
    "llama3.3_70b_instruct": ("meta-llama/Llama-3.3-70B-Instruct", 2e-5),
}
SMALL = sorted(p.name for p in (CONFIGS / "r1").glob("*.yaml") if p.name != "eval_zero.yaml")
COMPOSITIONS = [
    ("mini/aha.yaml",),
    ("mini/aha.yaml", "mini/aha_float32.yaml"),
    ("real.yaml",),  # runs in tests/experiments/test_real_model.py
    # one GPU; these run small in tests/experiments/test_real_model.py
    ("data/math.yaml", "r1_zero.yaml", "hardware/one_gpu.yaml", "real/qwen3_0.6b_math.yaml"),
    *[
        ("data/gsm8k.yaml", "r1_zero.yaml", "real/qwen2.5_0.5b_gsm8k.yaml", f"hardware/{name}.yaml")
        for name in ("one_gpu_24gb", "one_gpu_48gb")
    ],
    ("data/gsm8k.yaml", "r1_zero.yaml", "hardware/one_gpu.yaml", "real/qwen2.5_0.5b_gsm8k.yaml"),
    ("mini/r1_zero.yaml",),
    *[(f"r1/{name}",) for name in SMALL],
    ("r1/eval.yaml", "r1/eval_zero.yaml"),
    ("mini/pretrain.yaml",),
    ("mini/pretrain_search.yaml",),
    ("mini/pretrain_tools.yaml",),
    ("mini/pretrain_repair.yaml",),
    ("mini/pretrain_student.yaml",),
    ("mini/pretrain.yaml", "mini/pretrain_reasoning.yaml"),
    *[
        (f"r1/{name}.yaml", "r1/reasoning/rl.yaml")
        for name in ("0_zero", "2_reasoning_rl", "4_rl_all_scenarios")
    ],
    *[
        (f"r1/{name}.yaml", "r1/reasoning/predict.yaml")
        for name in ("1a_few_shot", "1b_direct", "1c_from_zero", "3a_rejection_sampling")
    ],
    ("r1/eval.yaml", "r1/eval_zero.yaml", "r1/reasoning/eval.yaml"),
    *[(f"data/{name}.yaml", "r1_zero.yaml", "hardware/one_gpu.yaml") for name in DATA],
    *[
        ("data/gsm8k.yaml", "r1_zero.yaml", f"hardware/{name}.yaml")
        for name in ("cpu", "ddp", "fsdp2")
    ],
    *[("data/jsonl.yaml", "sft.yaml", f"hardware/{name}.yaml") for name in HARDWARE],
    ("data/countdown.yaml", "r1_zero.yaml", "hardware/cpu.yaml"),
    # runs in tests/modules/test_nodes.py
    ("data/gsm8k.yaml", "r1_zero.yaml", *NODES, "hardware/vllm_servers.yaml"),
    # runs in tests/rollout/test_vllm_training.py
    ("data/gsm8k.yaml", "r1_zero.yaml", "hardware/one_gpu.yaml", "hardware/vllm.yaml"),
    # its engine runs in tests/rollout/test_vllm_training.py
    ("data/gsm8k.yaml", "r1_zero.yaml", "hardware/fsdp2.yaml", "hardware/eight_gpus.yaml"),
    # runs in tests/rollout/test_engine_turns.py
    ("data/gsm8k.yaml", "r1_zero.yaml", "hardware/one_gpu.yaml", "hardware/one_gpu_turns.yaml"),
    ("data/curated.yaml", "sft.yaml", "hardware/one_gpu.yaml"),
    ("mini/r1_zero.yaml", "hardware/lora.yaml"),
    # runs in tests/callbacks/test_keep_best.py
    ("mini/aha.yaml", "debug/two_iterations.yaml"),
    # they run in tests/callbacks/test_loggers.py
    *[("mini/r1_zero.yaml", f"logger/{name}.yaml") for name in LOGGERS],
    ("mini/r1_zero.yaml", "mini/ppo.yaml"),
    ("data/gsm8k.yaml", "r1_zero.yaml", "ppo/long_cot.yaml", "hardware/cpu.yaml"),
    ("data/gsm8k.yaml", "r1_zero.yaml", "ppo/instruct_gpt.yaml", "hardware/one_gpu.yaml"),
    *[(f"r1/full/{name}.yaml",) for name in CURATION],  # they run in tests/curation
    *[(f"r1/full/{name}",) for name in FULL],  # run in tests/experiments/r1/test_stage_presets.py
    # they run in tests/experiments/r1/test_small_real.py
    ("r1/full/zero.yaml", "hardware/one_gpu.yaml", "r1/small_real/rl.yaml"),
    (
        "r1/full/rl_2.yaml",
        "hardware/one_gpu.yaml",
        "r1/small_real/rl.yaml",
        "r1/small_real/rl_2.yaml",
    ),
    ("r1/full/cold_start/direct.yaml", "r1/small_real/predict.yaml", "r1/small_real/judge.yaml"),
    (
        "r1/full/cold_start/from_zero.yaml",
        "r1/small_real/predict.yaml",
        "r1/small_real/from_zero.yaml",
    ),
    (
        "r1/full/rejection_sampling.yaml",
        "r1/small_real/predict.yaml",
        "r1/small_real/rejection.yaml",
    ),
    ("r1/full/cold_start.yaml", "hardware/one_gpu.yaml", "r1/small_real/sft.yaml"),
    ("eval/paper.yaml", "r1/small_real/eval.yaml"),
    # their memory is planned in tests/experiments/r1/test_full.py
    ("r1/full/zero.yaml", "r1/larger/zero_qwen_32b.yaml", *SERVED),
    ("r1/full/rl_1.yaml", "r1/larger/bf16_rl.yaml", *SERVED),
    ("r1/full/sft_800k.yaml", "r1/larger/bf16_sft.yaml", SERVED[0], "hardware/multi_node.yaml"),
    ("r1/full/reward_safety.yaml", "r1/larger/bf16_reward.yaml", SERVED[0]),
    *[
        ("data/jsonl.yaml", "distill/base.yaml", f"distill/{name}.yaml", "hardware/ddp.yaml")
        for name in STUDENTS
    ],
    ("reward/helpful.yaml",),  # they run in tests/experiments/test_reward_models_experiment.py
    ("reward/helpful.yaml", "reward/dpo.yaml"),  # its module runs in tests/modules/test_dpo.py
    ("reward/safety.yaml",),
    ("reward/process.yaml",),  # runs in tests/modules/test_reward.py
    ("data/gsm8k.yaml", "distill/on_policy.yaml", "hardware/one_gpu.yaml"),
    *[(f"eval/{name}",) for name in EVALUATIONS],  # they run in tests/evaluation/test_suites.py
]


def read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def arguments(*paths: Path) -> list[str]:
    return [word for path in paths for word in ("-c", str(path))]


def printed(capsys: pytest.CaptureFixture[str], *paths: Path) -> dict[str, Any]:
    """Return the configuration that the command line makes of these files."""
    with pytest.raises(SystemExit) as exit_:
        main(["fit", *arguments(*paths), "--print_config"])
    out, err = capsys.readouterr()
    assert exit_.value.code in (0, None), err
    return yaml.safe_load(out)


def leaves(given: Any, where: str = "") -> dict[str, Any]:
    """Return the scalars of nested mappings under dotted keys; lists are left whole."""
    if not isinstance(given, dict):
        return {where: given}
    return {
        k: v for key, value in given.items() for k, v in leaves(value, f"{where}.{key}").items()
    }


def test_every_shipped_file_is_in_a_composition():
    assert {name for names in COMPOSITIONS for name in names} == SHIPPED


@pytest.mark.long
@pytest.mark.parametrize("names", COMPOSITIONS, ids="+".join)
def test_a_composition_is_read_and_merged_with_the_later_file_winning(capsys, names):
    config = leaves(printed(capsys, *[CONFIGS / name for name in names]))
    wanted: dict[str, Any] = {}
    for name in names:
        change = read(CONFIGS / name)
        path = change.get("model", {}).get("class_path")
        if path and path != wanted.get("model", {}).get("class_path"):
            wanted.pop("model", None)
        engine = change.get("model", {}).get("init_args", {}).get("engine", {})
        if "class_path" in engine:  # another class drops what the former one was given
            wanted.get("model", {}).get("init_args", {}).pop("engine", None)
        if "class_path" in change.get("model", {}).get("init_args", {}).get("objective", {}):
            wanted.get("model", {}).get("init_args", {}).pop("objective", None)
        wanted = merge(wanted, change)
    wanted["data"]["init_args"].pop("seed", None)  # seed_everything is linked to it
    for key, value in leaves(wanted).items():
        if isinstance(value, list):
            assert len(config[key]) == len(value), key
        else:
            assert config[key] == value, key


def test_r1_zero_holds_the_papers_numbers(capsys):
    names = ("data/gsm8k.yaml", "r1_zero.yaml", "hardware/one_gpu.yaml")
    config = printed(capsys, *[CONFIGS / name for name in names])
    model, data = config["model"]["init_args"], config["data"]["init_args"]
    assert data["rollout"]["group_size"] == 16
    assert model["train_batch_size"] == 512
    num_rows = data["rollout"]["prompts_per_iteration"] * data["rollout"]["group_size"]
    assert num_rows == 8192 and num_rows // model["train_batch_size"] == 16
    assert model["num_inner_epochs"] == 1
    assert model["objective"]["init_args"]["beta"] == 0.001
    assert model["optimizer"]["init_args"]["lr"] == 3e-6
    assert model["sampling"]["temperature"] == 1.0
    assert [r["init_args"]["weight"] for r in model["rewards"]] == [1.0, 1.0]
    steps_per_iteration = 16
    assert data["num_iterations"] * steps_per_iteration == 10_400
    callbacks = {c["class_path"].split(".")[-1]: c for c in config["trainer"]["callbacks"]}
    refresh = callbacks["ReferenceRefresh"]["init_args"]["every_n_iterations"]
    assert refresh * steps_per_iteration == 400
    assert model["train_batch_size"] % 8 == 0  # ranks
    longest_row = data["prompts"]["max_tokens"] + model["sampling"]["max_tokens"]
    assert model["micro_batch_tokens"] >= longest_row


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"model": {"init_args": {"temprature": 1.0}}}, "temprature"),
        ({"model": {"init_args": {"sampling": {"temprature": 1.0}}}}, "temprature"),
        ({"data": {"init_args": {"promts": {"template": "plain"}}}}, "promts"),
        ({"data": {"init_args": {"rollout": {"groups": 2}}}}, "groups"),
        ({"trainer": {"max_epoch": 2}}, "max_epoch"),
        ({"modle": {"init_args": {"policy": "models/mini"}}}, "modle"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_it(capsys, tmp_path, change, key):
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(change))
    with pytest.raises((SystemExit, ValueError)) as error:
        main(["fit", *arguments(CONFIGS / "mini" / "r1_zero.yaml", path), "--print_config"])
    assert getattr(error.value, "code", 2) == 2
    assert key in str(error.value) + capsys.readouterr().err


# the recipes run

WORLD = "r1lit.worlds."
GRPO_CHANGE: dict[str, Any] = {
    "model": {
        "init_args": {
            "sampling": {"max_tokens": 16},
            "train_batch_size": 4,
            "micro_batch_tokens": 256,
        }
    },
    "data": {
        "init_args": {
            "train": [{"class_path": WORLD + "WorldCountdown", "init_args": {"num_problems": 8}}],
            "validation": [
                {
                    "class_path": WORLD + "WorldCountdown",
                    "init_args": {"split": "held_out", "num_problems": 2},
                }
            ],
            "rollout": {"prompts_per_iteration": 2, "group_size": 4},
            "num_iterations": 2,
            "evaluation": {"num_samples": 2},
        }
    },
    "trainer": {"val_check_interval": 1},
}


def run_small(
    names: tuple[str, ...], change: dict[str, Any], folder: Path, *extra: str, iterations: int = 2,
    draws: bool = False,
) -> Path:  # fmt: skip
    """Run a composition with ``change``; return its run folder."""
    paths = [CONFIGS / name for name in names]
    base = {} if draws else no_figures(*paths)
    change = merge(merge(base, {"trainer": {"enable_model_summary": False}}), change)
    small = folder / "small.yaml"
    small.write_text(yaml.safe_dump(change))
    run = folder / "run"
    cli = main(["fit", *arguments(*paths, small), "--run", str(run), *extra])
    assert int(cli.model.iteration) == iterations
    assert (run / "checkpoints" / "last.ckpt").is_file()
    assert (run / "policy" / "model.safetensors").is_file()
    assert (run / "config.yaml").is_file()
    return run


@pytest.mark.long
@pytest.mark.parametrize(
    "names",
    [
        ("mini/r1_zero.yaml",),
        ("data/countdown.yaml", "r1_zero.yaml", "hardware/cpu.yaml"),
    ],
    ids="+".join,
)
def test_a_reinforcement_learning_recipe_runs(names, tmp_path):
    policy = {"model": {"init_args": {"policy": str(save_policy(tmp_path / "tiny"))}}}
    change = merge(GRPO_CHANGE, policy)
    if names[0] != "mini/r1_zero.yaml":
        evaluation = {"temperature": 0.6, "top_p": 0.95, "max_tokens": 16}
        change = merge(change, {"model": {"init_args": {"validation_sampling": evaluation}}})
    run = run_small(names, change, tmp_path, draws=True)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [0, 1]
    assert "train/kl_reference" in lines[0]  # beta > 0
    assert [e["iteration"] for e in json.loads((run / "summary.json").read_text())] == [0, 1, 2]
    assert (run / "curves.png").is_file() and (run / "responses.jsonl").is_file()


def test_make_aha_may_be_called_again_and_again(tmp_path):
    """``--ckpt_path last``: fresh without a checkpoint; nothing more once finished."""
    names, resume = ("mini/r1_zero.yaml",), ("--ckpt_path", "last")
    policy = {"model": {"init_args": {"policy": str(save_policy(tmp_path / "tiny"))}}}
    change = merge(GRPO_CHANGE, policy)
    with pytest.warns(UserWarning, match="no last checkpoint available"):
        run = run_small(names, change, tmp_path, *resume)
    files = ("metrics.jsonl", "responses.jsonl", "summary.json", "policy/model.safetensors")
    before = [(run / name).read_bytes() for name in files]
    run_small(names, change, tmp_path, *resume)
    assert [(run / name).read_bytes() for name in files] == before


@pytest.mark.slow
def test_pretraining_runs(tmp_path):
    corpus = {"class_path": WORLD + "WorldCorpus", "init_args": {"num_documents": 60, "seed": 0}}
    held_out = {"class_path": WORLD + "WorldCorpus", "init_args": {"num_documents": 4, "seed": 1}}
    change = {
        "model": {
            "init_args": {"policy": str(ROOT / "models" / "mini"), "micro_batch_tokens": 1280},
        },
        "data": {
            "init_args": {
                "documents": [corpus],
                "validation_documents": [held_out],
                "packing": {"train_batch_size": 4},
                "num_iterations": 2,
            }
        },
        "trainer": {"val_check_interval": 1},
    }
    run_small(("mini/pretrain.yaml",), change, tmp_path)


@pytest.mark.long
def test_supervised_fine_tuning_runs(tmp_path):
    table = tmp_path / "documents.jsonl"
    documents = [{"prompt": f"{i} + 1?", "response": f" {i + 1}"} for i in range(8)]
    table.write_text("".join(json.dumps(document) + "\n" for document in documents))
    source = {"class_path": "r1lit.data.TableDocuments", "init_args": {"path": str(table)}}
    change = {
        "model": {
            "init_args": {"policy": str(save_policy(tmp_path / "tiny")), "micro_batch_tokens": 64}
        },
        "data": {
            "init_args": {
                "documents": [source],
                "validation_documents": [source],
                "packing": {"max_seq_len": 64, "documents_per_update": 2},
                "num_iterations": 1,
            }
        },
    }
    run = run_small(("data/jsonl.yaml", "sft.yaml", "hardware/cpu.yaml"), change, tmp_path)
    losses = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["train/learning_rate"] < 5e-5 for line in losses] == [True, True]  # cosine
