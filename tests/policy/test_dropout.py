"""Dropout and other noise of training mode: off in reinforcement learning, unless asked for."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
from families import save_tiny
from tiny import ROOT
from transformers import AutoTokenizer
from transformers.modeling_layers import GradientCheckpointingLayer

from r1lit.policy import CrossEntropy, Responses, load_policy

RATES = {  # as each calls them
    "gpt2": {"resid_pdrop": 0.4, "embd_pdrop": 0.4, "attn_pdrop": 0.4},
    "gpt_neo": {"resid_dropout": 0.4, "embed_dropout": 0.4, "attention_dropout": 0.4},
    "gpt_neox": {"hidden_dropout": 0.4, "attention_dropout": 0.4},
    "llama": {"attention_dropout": 0.4},
    "mistral": {"attention_dropout": 0.4},
    "opt": {"dropout": 0.4, "attention_dropout": 0.4},
    "biogpt": {"hidden_dropout_prob": 0.4, "activation_dropout": 0.4, "layerdrop": 0.4},
    "xglm": {"dropout": 0.4, "activation_dropout": 0.4, "layerdrop": 0.4},
    "bloom": {"hidden_dropout": 0.4, "attention_dropout": 0.4},
    "falcon": {"hidden_dropout": 0.4, "attention_dropout": 0.4},
    "seed_oss": {"residual_dropout": 0.4, "attention_dropout": 0.4},
    "starcoder2": {"residual_dropout": 0.4, "embedding_dropout": 0.4},
    "phi": {"resid_pdrop": 0.4, "embd_pdrop": 0.4},
    "phimoe": {"router_jitter_noise": 0.4},
    "mixtral": {"router_jitter_noise": 0.4, "attention_dropout": 0.4},
}
EAGER = ("gpt_neo", "bloom", "biogpt", "xglm", "opt")
RESPONSES = Responses(
    prompts=[[3, 4, 5, 6], [3, 4, 5, 6], [3, 9]],
    response_BT=torch.arange(10, 25).view(3, 5),
    mask_BT=torch.ones(3, 5, dtype=torch.bool),
)


@pytest.mark.filterwarnings("ignore:policy:UserWarning")
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", RATES)
def test_without_dropout_training_computes_what_evaluation_does(name, checkpointing, tmp_path):
    attention = "eager" if name in EAGER else "sdpa"
    folder = save_tiny(tmp_path, name, attention, **RATES[name])
    losses, norms = {}, {}
    for dropout in (False, True):
        policy = load_policy(
            folder, attention=attention, dropout=dropout, gradient_checkpointing=checkpointing
        )
        assert policy.training
        for mode in (True, False):
            policy.train(mode).zero_grad()
            torch.manual_seed(5)
            loss = policy(RESPONSES, CrossEntropy()).cross_entropy
            loss.backward()
            losses[dropout, mode] = loss.item()
            grads = [p.grad.norm() for p in policy.parameters() if p.grad is not None]
            norms[dropout, mode] = sum(grads).item()
        policy.train()
        if checkpointing and not dropout:
            layers = [m for m in policy.modules() if isinstance(m, GradientCheckpointingLayer)]
            assert layers and all(layer.training for layer in layers), "they go by their own mode"
    assert losses[False, True] == losses[False, False] == losses[True, False]
    assert norms[False, True] == pytest.approx(norms[False, False], rel=1e-5)
    assert losses[True, True] != pytest.approx(losses[True, False], abs=1e-3), (
        "nothing to switch off"
    )


def test_one_line_says_so_where_there_is_any(tmp_path: Path):
    folder = save_tiny(tmp_path / "a", "gpt2", **RATES["gpt2"])
    with pytest.warns(UserWarning, match=r"has dropout \(.*attn_pdrop 0.4.*dropout: true") as said:
        load_policy(folder, dropout=False)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_policy(folder)
        load_policy(save_tiny(tmp_path / "b", "llama"), dropout=False)


def test_a_saved_policy_still_has_its_dropout(tmp_path: Path):
    folder = save_tiny(tmp_path / "a", "gpt2", **RATES["gpt2"])
    with pytest.warns(UserWarning, match="has dropout"):
        load_policy(folder, dropout=False).save_pretrained(tmp_path / "b")
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in "ab"]
    assert configs[0]["resid_pdrop"] == configs[1]["resid_pdrop"] == 0.4


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [None, True])
def test_grpo_trains_what_it_has_drawn(fit, tmp_path: Path, dropout):
    """GPT-2's own default of 0.1 made 0.5 nats of mismatch."""
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models" / "mini")
    folder = save_tiny(
        tmp_path / "gpt2", "gpt2", vocab_size=len(tokenizer), n_positions=512, resid_pdrop=0.1,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    options = {"policy": folder} | ({} if dropout is None else {"dropout": dropout})
    fit("run", {"model": {"init_args": options}})
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line).get("train/mismatch/mean_abs") for line in lines]
    mismatch = [x for x in found if x is not None]
    assert len(mismatch) > 1
    assert all((x > 0.02) if dropout else (x < 1e-4) for x in mismatch), mismatch


@pytest.mark.parametrize("dropout", [False, True])
def test_checkpointed_layers_keep_little_for_the_backward_pass(policy, dropout):
    responses = Responses(
        prompts=[(5, 6, 7)] * 8,
        response_BT=torch.randint(3, 900, (8, 64)),
        mask_BT=torch.ones(8, 64, dtype=torch.bool),
    )

    def kept(checkpointing: bool) -> int:
        loaded = load_policy(str(policy), dropout=dropout, gradient_checkpointing=checkpointing)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, id):
            loaded(responses)
        return sum(sizes)

    assert kept(True) < 0.4 * kept(False)
