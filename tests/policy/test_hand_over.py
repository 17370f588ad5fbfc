"""An exported folder in the programs named for what does not fit: their own converters read it.

Neither is a dependency. What of them runs without a GPU needs

    pip install --target DIR --no-deps torchtitan==0.3.0 spmd_types triton verl==0.9.1 ray msgpack \
        tensordict pyvers omegaconf

and DIR on PYTHONPATH.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny import ROOT
from transformers import AutoModelForCausalLM

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
MINI = ROOT / "models" / "mini"  # as a run exports it: a Llama whose head is tied


def test_torchtitan_computes_the_same_log_probs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchtitan", reason="torchtitan is not installed")
    monkeypatch.setattr(torch._dynamo.config, "disable", False)  # its attention is compiled
    from torch.distributed import checkpoint
    from torchtitan.models import llama3 as titan

    policy = AutoModelForCausalLM.from_pretrained(MINI).eval()
    config = policy.config
    width, vocabulary = config.hidden_size, config.vocab_size
    layers = titan._build_llama3_layers(
        n_layers=config.num_hidden_layers,
        dim=width,
        n_heads=config.num_attention_heads,
        n_kv_heads=config.num_key_value_heads,
        hidden_dim=config.intermediate_size,
        rope=titan.ComplexRoPE.Config(
            dim=config.head_dim,
            max_seq_len=config.max_position_embeddings,
            theta=config.rope_parameters["rope_theta"],
            scaling="none",
        ),
        fuse_qkv=False,
        attn_backend="flex",
    )
    norm: dict[str, Any] = {"normalized_shape": width, "eps": config.rms_norm_eps}
    for layer in layers:
        layer.attention_norm.eps = layer.ffn_norm.eps = config.rms_norm_eps
    shape = titan.Llama3Model.Config(
        dim=width,
        vocab_size=vocabulary,
        enable_weight_tying=config.tie_word_embeddings,
        tok_embeddings=titan.Embedding.Config(num_embeddings=vocabulary, embedding_dim=width),
        norm=titan.RMSNorm.Config(**norm),
        lm_head=titan.Linear.Config(in_features=width, out_features=vocabulary),
        layers=layers,
    )
    model, adapter = titan.Llama3Model(shape), titan.Llama3StateDictAdapter(shape, str(MINI))
    named = adapter.to_hf(model.state_dict())
    checkpoint.load(named, storage_reader=adapter.get_hf_storage_reader(str(MINI)))
    model.load_state_dict(adapter.from_hf(dict(named)))
    stored = load_file(MINI / "model.safetensors")
    again = adapter.to_hf(model.state_dict())
    assert again.keys() == stored.keys()
    assert all(torch.equal(again[name], weight) for name, weight in stored.items())
    ids_BT = torch.randint(vocabulary, (2, 64), generator=torch.Generator().manual_seed(0))
    position_BT = torch.arange(64).expand(2, -1).contiguous()
    masks = model.get_attention_masks(position_BT)
    with torch.no_grad():
        there = model(ids_BT, attention_masks=masks, positions=position_BT)
        torch.testing.assert_close(there, policy(ids_BT).logits, rtol=0, atol=1e-4)


def test_what_verl_merges_is_what_it_was_given(tmp_path: Path) -> None:
    """Its FSDP checkpoint of one rank, which is written here, becomes a folder in bfloat16."""
    pytest.importorskip("verl", reason="verl is not installed")
    here, there = tmp_path / "checkpoint", tmp_path / "merged"
    (here / "huggingface").mkdir(parents=True)
    for file in MINI.glob("*.json"):
        shutil.copy(file, here / "huggingface")
    policy = AutoModelForCausalLM.from_pretrained(MINI)
    torch.save(policy.state_dict(), here / "model_world_size_1_rank_0.pt")
    (here / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": 1}))
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    done = subprocess.run(
        [*command, "--local_dir", here, "--target_dir", there], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    given, merged = load_file(MINI / "model.safetensors"), load_file(there / "model.safetensors")
    assert given.keys() == merged.keys()
    assert all(torch.equal(merged[name], given[name].bfloat16()) for name in given)
    assert (there / "tokenizer.json").read_text() == (MINI / "tokenizer.json").read_text()
