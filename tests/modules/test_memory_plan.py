"""The memory plan by hand, against what an update really holds, and for every preset of a table."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from tiny import ROOT, step
from torch.distributed._tools.mem_tracker import MemTracker
from transformers import AutoModelForCausalLM, LlamaConfig

from experiments.architectures import model_config
from r1lit.modules.memory_plan import (
    GB,
    LIBRARIES,
    Architecture,
    MemorySettings,
    memory_lines,
    memory_parts,
    most_memory,
    print_memory_plan,
    read_settings,
)
from r1lit.policy import CrossEntropy, Policy
from r1lit.policy.held import HeldModels
from r1lit.steps import Step
from r1lit.supervised_batches import PackedRows

CONFIG = partial(
    LlamaConfig,
    vocab_size=512,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    tie_word_embeddings=True,
)
# a layer: 1,024 + 512 + 512 + 1,024 + 3 x 2,048 + 64; outside: 512 x 32 (tied) + 32
LAYER, OUTSIDE = 9_280, 16_416
N = 2 * LAYER + OUTSIDE
TINY = Architecture.of(CONFIG())


def grpo(**changes: Any) -> dict[str, Any]:
    """Return a configuration; ``changes`` are of the module's arguments."""
    model = {
        "sampling": {"max_tokens": 200},
        "objective": {"class_path": "r1lit.objectives.GRPO", "init_args": {"beta": 0.001}},
        "engine": {"class_path": "r1lit.rollout.InProcessEngine", "init_args": {"max_rows": 8}},
        "micro_batch_tokens": 256,
        "gradient_checkpointing": True,
        **changes,
    }
    return {
        "model": {"class_path": "r1lit.modules.GRPOModule", "init_args": model},
        "data": {"init_args": {"prompts": {"max_tokens": 20}}},
        "trainer": {"precision": "bf16-mixed"},
    }


def sharded(ranks: int) -> dict[str, Any]:
    return {
        "class_path": "lightning.pytorch.strategies.ModelParallelStrategy",
        "init_args": {"data_parallel_size": ranks, "tensor_parallel_size": 1},
    }


def test_an_architecture_is_counted_without_its_weights():
    assert (TINY.num_parameters, TINY.num_outside_layers, TINY.layer_parameters) == (
        N, OUTSIDE, LAYER,
    )  # fmt: skip
    assert (TINY.attention_size, TINY.kv_size) == (32, 16)


def test_one_gpu_by_hand():
    parts = memory_parts(read_settings(grpo(), ranks=1), TINY)
    assert parts["always"] == {
        "weights": 4 * N,
        "gradients": 4 * N,
        "optimiser": 8 * N,
        "reference": 4 * N,
    }
    # a token: 4 x 32 bytes of each of 2 layers; kept of one (8 + 24 - 4) x 32 + 2 (32 + 16) x 2 +
    # 4 x 64 x 2 = 1,600, and 4 x 32 + 2 x 64 x 2 = 384 to go back through it
    assert parts["update"]["activations"] == 256 * (2 * 128 + 1_600 + 384)
    assert parts["update"]["logits"] == 4 * 512 * 32 + 2 * 2**27 + 12 * 2**25
    assert parts["update"]["copies"] == 2 * LAYER
    # 8 responses of 200 tokens, and the one prompt of their group, of 20
    cached = 8 * 200 + 20
    assert parts["rollout"] == {"keys and values": cached * 2 * 2 * 16 * 2, "copies": 2 * N}
    update = sum(parts["update"].values())
    assert most_memory(parts) == 20 * N + update > sum(parts["rollout"].values())


def test_a_cpu_holds_libraries_and_no_second_gradient_of_the_head():
    config = grpo(gradient_checkpointing=False)
    cpu = memory_parts(read_settings(config, ranks=1), TINY, device=torch.device("cpu"))
    assert cpu["always"]["libraries"] == LIBRARIES
    assert cpu["update"]["logits"] == 2 * 2**23 + 12 * 2**20
    del config["model"]["init_args"]["engine"]  # all rows at a time, an evaluation's too
    config["data"]["init_args"] |= {"validation": [], "evaluation": {"prompts_per_batch": 96}}
    assert read_settings(config, ranks=1).rows_decoded == 256
    config["data"]["init_args"]["evaluation"]["num_samples"] = 4
    config["data"]["init_args"]["validation"] = [{"class_path": "Sums"}]
    assert read_settings(config, ranks=1).rows_decoded == 384


def test_what_make_real_needs_is_said_before_it_starts_and_at_most_4_gb(capsys):
    config = yaml.safe_load((ROOT / "configs" / "real.yaml").read_text())
    policy = model_config("135M")
    trainer = SimpleNamespace(
        strategy=SimpleNamespace(root_device=torch.device("cpu")), world_size=1
    )
    print_memory_plan(config, policy, trainer)
    printed = capsys.readouterr().out
    assert "Memory of this process in GB" in printed
    assert float(printed.split("at most: ")[1].split()[0]) <= 4.0 and printed.count("\n") <= 4
    print_memory_plan(config, CONFIG(), trainer)
    assert capsys.readouterr().out == "", "of a small run nothing"


def test_shards_buckets_and_what_is_gathered():
    config = grpo()
    config["trainer"]["strategy"] = "ddp"
    parts = memory_parts(read_settings(config, ranks=4), TINY)
    assert parts["always"]["DDP's buckets"] == parts["always"]["weights"] == 4 * N
    config["trainer"]["strategy"] = sharded(4)
    parts = memory_parts(read_settings(config, ranks=4), TINY)
    assert sum(parts["always"].values()) == 16 * N // 4 + 4 * N
    config["model"]["init_args"]["reduce_every_pass"] = True
    parts = memory_parts(read_settings(config, ranks=4), TINY)
    assert sum(parts["always"].values()) == 20 * N // 4
    assert parts["update"]["gathered weights"] == 4 * (2 * OUTSIDE + 3 * LAYER)
    assert parts["rollout"]["gathered weights"] == 4 * N


def test_the_longest_row_bounds_a_micro_batch_that_asks_for_less():
    settings = read_settings(grpo(max_tokens_from={5: 600, 9: 400}), ranks=1)
    assert settings.micro_batch == settings.row_tokens == 620


def test_without_checkpointing_every_layer_keeps_its_own():
    parts = memory_parts(read_settings(grpo(gradient_checkpointing=False), ranks=1), TINY)
    assert parts["update"]["activations"] == 256 * (2 * 1_600 + 384)
    assert parts["update"]["copies"] == 2 * N


@pytest.mark.parametrize(
    ("changes", "always"),
    [
        ({"policy": {"dtype": "bfloat16"}}, {"weights": 2 * N, "optimiser": 4 * N}),
        (
            {"policy": {"dtype": "bfloat16"}, "optimizer": {"class_path": "optimi.AdamW"}},
            {"weights": 2 * N, "gradients": 2 * N, "optimiser": 6 * N, "reference": 2 * N},
        ),
        ({"optimizer": {"class_path": "torch.optim.SGD"}}, {"optimiser": None}),
        (
            {"policy": {"adapter": {"class_path": "peft.LoraConfig"}}},
            {"weights": 4 * N, "optimiser": 8 * round(N / 100), "reference": None},
        ),
        (
            {
                "rewards": [
                    {"class_path": "r1lit.rewards.Accuracy"},
                    {
                        "class_path": "r1lit.rewards.ConditionalReward",
                        "init_args": {"reward": {"class_path": "r1lit.rewards.RewardModel"}},
                    },
                    {"class_path": "ProcessReward", "init_args": {"model": {"dtype": "bfloat16"}}},
                ]
            },
            {"reward models": 6 * N},
        ),
        (
            {
                "engine": {
                    "class_path": "r1lit.rollout.VLLMEngine",
                    "init_args": {"serve": True, "flags": {"gpu-memory-utilization": 0.4}},
                }
            },
            {"vLLM": round(0.4 * 80 * GB)},
        ),
        (
            {
                "engine": {
                    "class_path": "r1lit.rollout.VLLMEngine",
                    "init_args": {"serve": True, "gpus": [4, 5, 6, 7]},
                }
            },
            {"vLLM": None},  # on other GPUs
        ),
    ],
)
def test_what_a_setting_changes(changes, always):
    parts = memory_parts(read_settings(grpo(**changes), ranks=1), TINY)
    assert {part: parts["always"].get(part) for part in always} == always


def test_a_second_trained_model_is_counted():
    config = grpo(objective=None)
    beside = "critic or process model"
    init_args = config["model"]["init_args"]
    for steps, of_each in (([step("Critic")], 16), ([step("ProcessModel")], 20), ([], 0)):
        init_args["steps"] = steps
        parts = memory_parts(read_settings(config, ranks=1), TINY)["always"]
        assert parts.get(beside, 0) == of_each * N
        assert "reference" not in parts
    init_args["steps"] = [step("KLInReward", beta=0.02)]
    assert memory_parts(read_settings(config, ranks=1), TINY)["always"]["reference"] == 4 * N


class Listens(Step):
    """A step of one's own that asks for the reference and holds a model of its own."""

    reads = ("reference",)
    held = HeldModels(constant=1)

    def __call__(self, rollout, run):
        return rollout, {}


def test_ones_own_classes_are_asked_too():
    path = f"{__name__}.Listens"
    parts = memory_parts(read_settings(grpo(objective=None, steps=[path]), ranks=1), TINY)
    assert parts["always"]["reference"] == parts["always"]["critic or process model"] == 4 * N
    rows = read_settings(grpo(engine={"class_path": "r1lit.rollout.ConstrainedEngine"}), ranks=1)
    assert rows.rows_decoded == 256, "it decodes in this process"
    rows = read_settings(grpo(engine="ServerEngine"), ranks=1)
    assert rows.rows_decoded == 0
    with pytest.raises(ValueError, match=r"^model\.steps\.class_path: 'r1lit\.steps\.Nothing'"):
        read_settings(grpo(steps=["Nothing"]), ranks=1)


@pytest.mark.parametrize(
    ("optimizer", "bytes_of_each"),
    [
        ({"class_path": "torch.optim.SGD", "init_args": {"momentum": 0.9}}, 4),
        ({"class_path": "torch.optim.Adafactor", "init_args": {"lr": 0.01}}, 0),
        ({"class_path": "torch.optim.Adam", "init_args": {"amsgrad": True}}, 12),
        ({"class_path": "torch.optim.RMSprop"}, 4),
    ],
)
def test_an_optimiser_is_asked_for_its_state(optimizer, bytes_of_each):
    assert read_settings(grpo(optimizer=optimizer), ranks=1).moments == bytes_of_each


def test_a_teacher_is_whole_on_every_rank():
    teacher = {
        "class_path": "r1lit.policy.ModelTeacher",
        "init_args": {"model": {"dtype": "bfloat16"}},
    }
    config = grpo(teacher=teacher, on_policy=1.0)
    config["trainer"]["strategy"] = sharded(4)
    other = replace(TINY, num_parameters=1_000_000)
    parts = memory_parts(read_settings(config, ranks=4), TINY, other)
    assert parts["always"]["teacher"] == 2_000_000


def test_lines_say_what_fits():
    parts = {"always": {"weights": 3 * 10**9}, "update": {"logits": 10**9}, "rollout": {}}
    *_, verdict = memory_lines(parts, 80 * GB)
    assert verdict == "at most: 4.0 of 80; fits with 10% to spare"
    *_, verdict = memory_lines(parts, 4.4 * GB)
    assert "does not fit" in verdict


def settings_of(weight: int, product: int, checkpointing: bool, tokens: int) -> MemorySettings:
    return MemorySettings(
        ranks=1, is_sharded=False, trains=True, weight=weight, product=product, moments=0,
        trained_share=1.0, has_reference=False, reward_models=0, teacher_weight=0,
        gradient_checkpointing=checkpointing, micro_batch=tokens, rows_decoded=0, row_tokens=0,
        served_share=0.0, reduces_every_pass=True, response_tokens=0, group_size=1,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize("kind", ["float32", "mixed", "bfloat16"])
def test_activations_are_what_a_backward_pass_really_holds(kind, checkpointing):
    """Measured tensor by tensor: what is alive at the peak, less weights, gradients and logits."""
    config = CONFIG(
        hidden_size=128, intermediate_size=512, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=64, use_cache=False,
    )  # fmt: skip
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    with torch.random.fork_rng(devices=[]):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    policy = Policy(model).train()
    tokens = 2048
    ids = torch.arange(tokens).remainder(60)[None]
    rows = PackedRows(
        iteration=0,
        input_ids_RL=ids,
        position_ids_RL=torch.arange(tokens)[None],
        loss_mask_RL=torch.arange(tokens)[None] > 0,
    )

    def update() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "mixed", cache_enabled=False):
            policy(rows, CrossEntropy()).cross_entropy.backward()

    update()  # gradients are there from now on
    tracker = MemTracker()
    tracker.track_external(policy)
    with tracker:
        update()
    [peak] = tracker.get_tracker_snapshot("peak").values()
    whole = Architecture.of(config)
    weight = 2 if kind == "bfloat16" else 4
    measured = peak["Total"] - 2 * weight * whole.num_parameters
    product = 4 if kind == "float32" else 2
    parts = memory_parts(settings_of(weight, product, checkpointing, tokens), whole)
    planned = parts["update"]["activations"] + parts["update"].get("copies", 0)
    print(f"measured {measured / 1e6:.1f} MB, planned {planned / 1e6:.1f} MB")
    assert 0.95 < planned / measured < 1.05
