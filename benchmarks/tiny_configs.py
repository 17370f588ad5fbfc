"""Tiny configurations of transformers' causal language models, made from their own defaults."""

from __future__ import annotations

from typing import Any

from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    PretrainedConfig,
)

VOCABULARY = 128
LENGTH = 256  # of the context

# what sizes are called, over all architectures
SIZES: dict[int | float, str] = {
    VOCABULARY: "vocab_size n_vocab",
    32: "hidden_size d_model n_embd dim dim_model embed_dim word_embed_proj_dim embedding_dim"
    " lru_width q_lora_rank kv_channels",
    48: "intermediate_size ffn_dim dim_ff ffn_hidden_size d_ff",
    2: "num_hidden_layers n_layer n_layers num_layers decoder_layers num_blocks num_key_value_heads"
    " num_kv_heads num_experts_per_tok num_experts_per_token moe_top_k moe_topk moe_k"
    " swa_num_key_value_heads linear_num_key_heads n_mamba_heads",
    4: "num_attention_heads n_head n_heads num_heads decoder_attention_heads num_experts"
    " n_routed_experts num_local_experts moe_num_experts swa_num_attention_heads dim_model_base"
    " linear_num_value_heads linear_num_heads index_n_heads rotary_dim mamba_n_heads"
    " mamba_dt_rank time_step_rank mamba_num_heads adapter_rank num_query_groups",
    1: "n_shared_experts num_shared_experts moe_num_shared_experts first_k_dense_replace n_group"
    " topk_group num_expert_group mamba_n_groups n_groups num_dense_layers",
    16: "moe_intermediate_size expert_ffn_hidden_size shared_expert_intermediate_size"
    " kv_lora_rank mamba_d_state state_size mamba_d_head shared_intermediate_size index_head_dim"
    " decoder_ffn_dim mamba_head_dim ssm_state_size moe_shared_expert_intermediate_size"
    " shared_experts_intermediate_size mamba_d_ssm",
    8: "head_dim qk_nope_head_dim v_head_dim qk_rope_head_dim swa_head_dim swa_v_head_dim"
    " linear_key_head_dim linear_value_head_dim linear_head_dim sliding_window"
    " attention_window_size window_size attention_chunk_size chunk_size mamba_chunk_size",
    LENGTH: "max_position_embeddings n_positions n_ctx max_seq_len",
    0.3: "initializer_range init_std",
}
SMALL: dict[str, Any] = {name: size for size, names in SIZES.items() for name in names.split()}
SMALL |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LAYER_LISTS = ("layer_types", "mlp_layer_types", "layers_block_type", "block_types")

# where names alone do not make a whole
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
OTHERWISE: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "ctrl": {"dff": 48},
    "deepseek_v2": {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "moe_intermediate_size": 16,
              "num_experts_per_tok": 2},
    "falcon": {"head_dim": None},
    "falcon_h1": {"mamba_d_ssm": 64},
    "gemma3n_text": {"num_kv_shared_layers": 0, "activation_sparsity_pattern": [0.0, 0.0],
                     "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8,
                     "laurel_rank": 4, "intermediate_size": [48, 48]},
    "gemma4_text": {"vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "attention_layers": None},
    "granitemoehybrid": HYBRID,
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "longcat_flash": {"zero_expert_num": 1},
    "mamba2": {"num_heads": 4, "head_dim": 16},
    "ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 2},
    "xlnet": {"d_inner": 48},
    "zaya": {"num_experts_per_tok": 1},
}  # fmt: skip


# more than a decoder of text, or of a size that no key makes small
LEFT_OUT = ("blt", "deepseek_v4", "git", "phi4_multimodal")


def causal_model_types() -> list[str]:
    """Return the architectures that have a decoder of text and nothing beside it."""
    found: list[str] = []
    for cls in MODEL_FOR_CAUSAL_LM_MAPPING:
        if cls in MODEL_FOR_MASKED_LM_MAPPING or cls.model_type in (*found, *LEFT_OUT):
            continue
        try:
            config = cls()
        except Exception:
            continue
        if config.get_text_config(decoder=True) is config:
            found.append(cls.model_type)
    return sorted(found)


def tiny_config(model_type: str, **changes: Any) -> PretrainedConfig:
    """Return a configuration of two layers or so, one of each kind that the default has.

    ``changes`` come last. Whatever transformers raises of a configuration passes on.
    """
    cls = CONFIG_MAPPING[model_type]
    has = {k: v for k, v in cls().to_dict().items() if v is not None}
    mapped = cls.attribute_map  # other names of the same
    values = {k: v for k, v in SMALL.items() if k in has or k in mapped}
    for name in LAYER_LISTS:
        if isinstance(has.get(name), list):
            kinds = list(dict.fromkeys(has[name]))
            values[name] = kinds if len(kinds) > 1 else kinds * 2
    num = max((len(values[n]) for n in LAYER_LISTS if n in values), default=2)
    for name in LAYER_LISTS:
        if name in values:
            values[name] = (values[name] * num)[:num]
    for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_blocks"):
        if name in values:
            values[name] = num
    if "per_layer_config" in has:
        values["per_layer_config"] = {}
    if "qk_nope_head_dim" in has:  # latent attention has no groups of heads
        values["num_key_value_heads"] = values["num_attention_heads"]
    values |= OTHERWISE.get(model_type, {}) | changes
    return cls(**{k: v for k, v in values.items() if v is not None})
