"""Training an adapter of peft's alone, through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from modules.test_ddp import fit_in_a_process
from modules.test_resume import assert_equal, everything, run_and_kill
from modules.test_sft_module import documents, losses, sft  # noqa: F401  (a fixture)
from safetensors.torch import load_file
from tiny import ROOT, data, grpo_config, merge, model, save_policy
from tiny_distillation import off_policy
from tiny_evaluation import evaluation_config, texts
from tiny_reward import reward_config, write_pairs
from transformers import AutoModelForCausalLM

from r1lit.cli import main
from r1lit.policy import ModelSource, load_policy
from r1lit.policy.adapter import names_in_4_bits
from r1lit.policy.merge import main as merge_to_a_model

LORA = {"class_path": "peft.LoraConfig", "init_args": {"r": 4, "target_modules": "all-linear"}}
WITH_KL = {"class_path": "r1lit.objectives.GRPO", "init_args": {"beta": 0.05}}
REFRESH = {
    "class_path": "r1lit.callbacks.ReferenceRefresh",
    "init_args": {"every_n_iterations": 2},
}


IN_4_BITS = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
BITS_AND_BYTES = find_spec("bitsandbytes") is not None
needs_bits_and_bytes = pytest.mark.skipif(
    not BITS_AND_BYTES, reason="bitsandbytes is not installed"
)


def adapter_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "policy" / "adapter_model.safetensors")


def iterations(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "train/loss" in line]


@pytest.mark.long
def test_the_adapter_alone_is_trained_saved_and_exported(fit, tmp_path: Path, policy: Path) -> None:
    cli = fit("run", model(policy={"adapter": LORA}, objective=WITH_KL), data(num_iterations=3))
    module = cli.model
    before = AutoModelForCausalLM.from_pretrained(policy).state_dict()
    now = module.policy.model.state_dict()
    for name, value in before.items():
        in_a_layer = name.replace(".weight", ".base_layer.weight")
        assert torch.equal(value, now[in_a_layer if in_a_layer in now else name])
    state = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=False)
    assert all("lora" in name for name in state["state_dict"] if name != "iteration")
    trained = sum(len(group["params"]) for group in state["optimizer_states"][0]["param_groups"])
    assert trained == len(state["state_dict"]) - 1 == 2 * 7 * 2  # A and B of 7 matrices, 2 layers
    exported = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "run" / "policy").eval()
    ids = torch.arange(3, 20)[None]
    module.policy.eval()
    with torch.no_grad():
        now = module.policy.model(ids).logits
        assert torch.equal(exported(ids).logits, now)
        with exported.disable_adapter():
            assert float((exported(ids).logits - now).abs().max()) > 0.01
    first, *rest = iterations(tmp_path / "run")
    assert all(line["train/mismatch/mean_abs"] < 1e-6 for line in (first, *rest))
    assert rest[-1]["train/kl_reference"] > 2 * first["train/kl_reference"] >= 0


@pytest.mark.long
def test_without_an_effect_the_reference_is_the_first_policy(fit, tmp_path: Path) -> None:
    """One update a rollout: the first is made where policy and reference are one."""
    fit(
        "run",
        model(policy={"adapter": LORA}, objective=WITH_KL, train_batch_size=16),
        data(num_iterations=2),
    )
    first, second = iterations(tmp_path / "run")
    assert first["train/kl_reference"] == 0.0 and second["train/kl_reference"] > 0.0


@pytest.mark.slow
def test_a_refreshed_reference_is_a_copy_of_the_adapter(fit, tmp_path: Path) -> None:
    cli = fit(
        "run",
        model(policy={"adapter": LORA}, objective=WITH_KL, train_batch_size=16),
        data(num_iterations=3),
        args=("--trainer.callbacks+", json.dumps([REFRESH])),
    )
    values = [line["train/kl_reference"] for line in iterations(tmp_path / "run")]
    assert values[0] == values[2] == 0.0 and values[1] > 0.0
    copies, weights = list(cli.model.reference.values), cli.model.policy.adapter.weights
    assert [c.shape for c in copies] == [w.shape for w in weights]
    assert not any(torch.equal(c, w) for c, w in zip(copies, weights, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", [1, 3])
def test_killed_and_resumed_is_bit_equal(tmp_path: Path, policy: Path, kill_at: int) -> None:
    """Killed before and after the reference is refreshed for the first time."""
    change = model(policy={"adapter": LORA}, objective=WITH_KL) | data(num_iterations=5)
    whole = grpo_config(tmp_path / "whole", policy, change)
    broken = grpo_config(tmp_path / "broken", policy, change)
    extra = ["--trainer.callbacks+", json.dumps([REFRESH])]
    main(["fit", "-c", str(whole), *extra])
    run_and_kill(broken, kill_at, tmp_path, callbacks=[REFRESH])
    main(["fit", "-c", str(broken), *extra, "--ckpt_path", "last"])
    assert_equal(everything(tmp_path / "whole"), everything(tmp_path / "broken"))
    assert_equal(adapter_of(tmp_path / "whole"), adapter_of(tmp_path / "broken"))


@pytest.mark.slow
def test_other_base_weights_are_refused_on_resume(fit, tmp_path: Path, policy: Path) -> None:
    base = tmp_path / "base"
    AutoModelForCausalLM.from_pretrained(policy).save_pretrained(base)
    for file in policy.glob("tok*"):
        (base / file.name).write_bytes(file.read_bytes())
    own = model(policy={"path": str(base), "adapter": LORA})
    fit("run", own, data(num_iterations=2, validation=None))
    changed = AutoModelForCausalLM.from_pretrained(base)
    changed.model.norm.weight.data += 0.1
    changed.save_pretrained(base)
    with pytest.raises(ValueError, match="ckpt_path: the adapter was trained on other weights"):
        fit("run", own, data(num_iterations=4, validation=None), args=("--ckpt_path", "last"))


@pytest.mark.slow
def test_two_ranks_make_the_update_of_one(tmp_path: Path, policy: Path) -> None:
    change = merge(
        model(
            policy={"adapter": LORA},
            objective=WITH_KL,
            train_batch_size=16,
            optimizer={"class_path": "torch.optim.SGD", "init_args": {"lr": 0.5}},
        ),
        data(num_iterations=2, validation=None),
    )
    for name, devices in (("one", 1), ("two", 2)):
        ranks = {"trainer": {"devices": devices, "strategy": "ddp" if devices > 1 else "auto"}}
        config = grpo_config(tmp_path / name, policy, merge(change, ranks))
        done = fit_in_a_process(config, tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
    one, two = adapter_of(tmp_path / "one"), adapter_of(tmp_path / "two")
    assert any(float(value.abs().max()) > 1e-4 for name, value in one.items() if "lora_B" in name)
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_checkpointed_layers_have_the_same_gradients(
    tmp_path: Path,
    policy: Path,
    documents: Path,  # noqa: F811
) -> None:
    for name, checkpointed in (("plain", False), ("checkpointed", True)):
        config = sft(
            tmp_path / name,
            policy,
            documents,
            policy={"adapter": LORA},
            gradient_checkpointing=checkpointed,
        )
        main(["fit", "-c", str(config), "--data.num_iterations", "6"])
    assert losses(tmp_path / "plain") == losses(tmp_path / "checkpointed")
    assert losses(tmp_path / "plain")[-1] < 0.9 * losses(tmp_path / "plain")[0]
    assert_equal(adapter_of(tmp_path / "plain"), adapter_of(tmp_path / "checkpointed"))


@pytest.mark.slow
def test_the_next_stage_goes_on_with_the_adapter_or_merges_it(
    fit, tmp_path: Path, policy: Path
) -> None:
    short = data(num_iterations=2, validation=None)
    still = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.0}}
    fit("first", model(policy={"adapter": LORA}), short)
    first = tmp_path / "first" / "policy"
    go_on = model(
        policy={"path": str(first), "adapter": LORA}, objective=WITH_KL, train_batch_size=16
    )
    fit("second", go_on, short)
    values = [line["train/kl_reference"] for line in iterations(tmp_path / "second")]
    assert values[0] == 0.0 and values[1] > 0.0  # towards the policy that this stage began with
    settings = json.loads((tmp_path / "second" / "policy" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(policy)
    fit("still", model(policy={"path": str(first), "adapter": LORA}, optimizer=still), short)
    assert_equal(adapter_of(tmp_path / "first"), adapter_of(tmp_path / "still"))
    merged = fit("merged", model(policy=str(first), optimizer=still), short).model.policy.model
    wanted = peft.AutoPeftModelForCausalLM.from_pretrained(first)
    ids = torch.arange(3, 20)[None]
    torch.testing.assert_close(merged(ids).logits, wanted(ids).logits, rtol=1e-4, atol=1e-4)
    assert (tmp_path / "merged" / "policy" / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_reward_model_of_an_adapter_and_its_head(tmp_path: Path, policy: Path) -> None:
    from r1lit.policy import load_reward_model

    table = write_pairs(tmp_path / "pairs.jsonl")
    config = reward_config(tmp_path / "run", policy, table, model(policy={"adapter": LORA}))
    module = main(["fit", "-c", str(config)]).model
    exported = load_reward_model(str(tmp_path / "run" / "policy"), pad_id=0).eval()
    rows = [[5, 6, 7], [8, 9, 10, 11]]
    with torch.no_grad():
        now = module.policy.eval()(rows)
    assert float(now.abs().max()) > 0
    torch.testing.assert_close(exported(rows), now, rtol=1e-4, atol=1e-5)
    assert exported.config.reward_mean == module.policy.config.reward_mean
    assert len(adapter_of(tmp_path / "run")) == 2 * 7 * 2 + 1


@pytest.mark.slow
def test_a_student_learns_by_an_adapter_from_a_teacher(tmp_path: Path, policy: Path) -> None:
    teacher = {"class_path": "r1lit.policy.ModelTeacher",
               "init_args": {"model": str(save_policy(tmp_path / "teacher", seed=9))}}  # fmt: skip
    how = {"teacher": teacher, "logit_weight": 1.0, "sft_weight": 0.0}
    config = off_policy(tmp_path / "run", {"path": str(policy), "adapter": LORA}, **how)
    main(["fit", "-c", str(config), "--data.num_iterations", "8"])
    values = losses(tmp_path / "run")
    assert values[-1] < 0.95 * values[0]
    assert len(adapter_of(tmp_path / "run")) == 2 * 7 * 2


@pytest.mark.slow
def test_a_peft_folder_is_evaluated(fit, tmp_path: Path) -> None:
    fit("run", model(policy={"adapter": LORA}), data(num_iterations=2, validation=None))
    for name in ("evaluation", "of_whole"):
        (tmp_path / name).mkdir()
    config = evaluation_config(tmp_path / "evaluation", tmp_path / "run" / "policy")
    main(["test", "-c", str(config)])
    merge_to_a_model([str(tmp_path / "run" / "policy"), str(tmp_path / "whole")])
    config = evaluation_config(tmp_path / "of_whole", tmp_path / "whole")
    main(["test", "-c", str(config)])
    assert texts(tmp_path / "evaluation" / "run") == texts(tmp_path / "of_whole" / "run")


@pytest.mark.long
@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        (
            {"target_modules": ["qkv"]},
            "adapter: LoraConfig does not fit Llama.*: .*q_proj",
        ),
        ({"target_modules": ["q_proj", "w1"]}, "adapter.target_modules: .* has no w1; .*q_proj"),
        ({"init_lora_weights": "pissa"}, "adapter.init_lora_weights: 'pissa' changes"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused_before_weights_are_loaded(
    fit, tmp_path: Path, policy: Path, adapter: dict[str, Any], message: str
) -> None:
    no_weights = tmp_path / "no_weights"
    no_weights.mkdir()
    for file in policy.iterdir():
        if file.suffix != ".safetensors":
            (no_weights / file.name).write_bytes(file.read_bytes())
    settings = merge(LORA, {"init_args": adapter})
    with pytest.raises(ValueError, match=message) as error:
        fit("run", model(policy={"path": str(no_weights), "adapter": settings}))
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_without_peft_one_line_says_what_to_install(tmp_path: Path, policy: Path) -> None:
    config = grpo_config(tmp_path / "run", policy, model(policy={"adapter": LORA}))
    code = "import sys; sys.modules['peft'] = None; from r1lit.cli import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", code, "fit", "-c", str(config)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 2, done.stderr[-2000:]
    last = done.stderr.strip().splitlines()[-1]
    what = "'peft.LoraConfig' cannot be imported, there is no module 'peft'"
    assert last == f"r1lit: error: model.policy.adapter: {what}; pip install 'r1lit[lora]'"


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adapter": LORA, "from_scratch": True}, r"adapter: .*leave from_scratch out"),
        ({"quantization": IN_4_BITS}, r"quantization: .* and no adapter is; give adapter"),
        (
            {"adapter": LORA, "quantization": {"load_in_8bit": True}},
            r"quantization: load_in_8bit is not one of bnb_4bit_compute_dtype, .*",
        )
        if BITS_AND_BYTES
        else (
            {"adapter": LORA, "quantization": IN_4_BITS},
            r"quantization: bitsandbytes is not installed; pip install 'r1lit\[qlora\]'",
        ),
    ],
)
def test_what_an_adapter_cannot_be_beside(fit, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as error:
        fit("run", model(policy=change))
    assert "\n" not in str(error.value)


@needs_bits_and_bytes
@pytest.mark.slow
def test_beside_weights_in_4_bits(fit, tmp_path: Path, policy: Path) -> None:
    change = model(policy={"adapter": LORA, "quantization": IN_4_BITS}, objective=WITH_KL)
    fit("run", change, data(num_iterations=2))
    cli = fit("run", change, data(num_iterations=3), args=("--ckpt_path", "last"))
    lines, trained = iterations(tmp_path / "run"), cli.model.policy
    assert len(lines) == 3 and all(line["train/mismatch/max_abs"] < 1e-4 for line in lines)
    assert lines[0]["train/kl_reference"] < lines[-1]["train/kl_reference"]
    assert len(names_in_4_bits(trained.model)) == 2 * 7
    state = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=False)
    assert all("lora" in name for name in state["state_dict"] if name != "iteration")
    merge_to_a_model([str(tmp_path / "run" / "policy"), str(tmp_path / "whole")])
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "whole").eval()
    handed = dict(trained.named_weights())
    for name, weight in whole.state_dict().items():
        torch.testing.assert_close(handed.pop(name), weight, rtol=0, atol=1e-6)
    assert not handed
    beside_all = peft.AutoPeftModelForCausalLM.from_pretrained(
        tmp_path / "run" / "policy", quantization_config=None
    )
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        now = trained.eval().model(ids).logits
        torch.testing.assert_close(whole(ids).logits, now, rtol=0, atol=1e-3)
        assert float((beside_all.eval()(ids).logits - now).abs().max()) > 0.02
    (tmp_path / "evaluation").mkdir()
    evaluated = evaluation_config(tmp_path / "evaluation", tmp_path / "run" / "policy")
    main(["test", "-c", str(evaluated)])


@needs_bits_and_bytes
@pytest.mark.slow
def test_documents_beside_weights_in_4_bits(
    tmp_path: Path,
    policy: Path,
    documents: Path,  # noqa: F811
) -> None:
    config = sft(
        tmp_path / "run", policy, documents, policy={"adapter": LORA, "quantization": IN_4_BITS}
    )
    main(["fit", "-c", str(config)])
    values = losses(tmp_path / "run")
    assert values[-1] < 0.9 * values[0]
    beside = peft.LoraConfig(**LORA["init_args"])
    with pytest.raises(ValueError, match="quantization: FSDP2 does not shard weights in 4 bits"):
        load_policy(ModelSource(str(policy), adapter=beside, quantization=IN_4_BITS), sharded=True)
