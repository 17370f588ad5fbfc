"""GGUF files: refused as a policy with the command that converts them, and converted by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from r1lit.policy import load_config, load_policy, load_tokenizer
from r1lit.policy.merge import main

CONFIG = Qwen2Config(
    vocab_size=260, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    tie_word_embeddings=True, eos_token_id=2, bos_token_id=1,
)  # fmt: skip
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.layers": "blk",
    "self_attn.o_proj": "attn_output",
    "self_attn.": "attn_",
    "_proj": "",
    "mlp.": "ffn_",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def save_gguf(path: Path) -> Qwen2ForCausalLM:
    """Write a small random Qwen2 with one token a byte and "Ab", in float32; return it."""
    gguf = pytest.importorskip("gguf")
    from tokenizers import pre_tokenizers

    torch.manual_seed(0)
    model = Qwen2ForCausalLM(CONFIG)
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(CONFIG.num_hidden_layers)
    writer.add_context_length(CONFIG.max_position_embeddings)
    writer.add_embedding_length(CONFIG.hidden_size)
    writer.add_feed_forward_length(CONFIG.intermediate_size)
    writer.add_head_count(CONFIG.num_attention_heads)
    writer.add_head_count_kv(CONFIG.num_key_value_heads)
    writer.add_layer_norm_rms_eps(CONFIG.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    writer.add_token_list(["<pad>", "<bos>", "<eos>", *alphabet, "Ab"])
    writer.add_token_types([3, 3, 3, *[1] * 257])
    writer.add_token_merges(["A b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":  # tied
            continue
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        writer.add_tensor(name, np.ascontiguousarray(weight.float().numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def test_a_gguf_file_becomes_a_policy_with_the_same_weights(tmp_path):
    model = save_gguf(tmp_path / "tiny-F32.gguf")
    main([str(tmp_path / "tiny-F32.gguf"), str(tmp_path / "folder")])
    policy = load_policy(str(tmp_path / "folder"))
    weights = dict(policy.named_weights())
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=0)
    assert weights["lm_head.weight"].data_ptr() == weights["model.embed_tokens.weight"].data_ptr()
    assert load_tokenizer(str(tmp_path / "folder"))("AbAb")["input_ids"] == [259, 259]
    with pytest.raises(ValueError, match=r"output: .*folder exists"):
        main([str(tmp_path / "tiny-F32.gguf"), str(tmp_path / "folder")])


@pytest.mark.parametrize("read", [load_config, load_tokenizer, load_policy])
@pytest.mark.parametrize("named", ["model-Q4_1.gguf", "."])
def test_a_gguf_file_or_a_folder_of_one_names_the_command_that_converts_it(tmp_path, read, named):
    (tmp_path / "model-Q4_1.gguf").write_bytes(b"GGUF")
    with pytest.raises(ValueError, match=r"GGUF file.*r1lit merge \S+/model-Q4_1.gguf \S+ "):
        read(str(tmp_path / named))


def test_a_damaged_file_is_one_line_and_leaves_nothing(tmp_path):
    pytest.importorskip("gguf")
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(ValueError, match=r"a\.gguf: transformers cannot read it"):
        main([str(tmp_path / "a.gguf"), str(tmp_path / "folder")])
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]
