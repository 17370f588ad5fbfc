"""Small random models of real architectures, a Markov chain, and a tokenizer of bytes.

Weights are large, so that next-token distributions are far from uniform.
"""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    Qwen3NextConfig,
)

from r1lit.policy import Logits, LogProbs, Policy, Responses
from r1lit.supervised_batches import PackedRows

PAD, BOS, EOS = 0, 1, 2
VOCABULARY = 262
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
}
WINDOW = 5


def configurations() -> dict[str, PretrainedConfig]:
    return {
        "llama": LlamaConfig(**SHAPE),
        "qwen2": Qwen2Config(**SHAPE),
        "qwen3": Qwen3Config(**SHAPE, head_dim=8),
        "gpt2": GPT2Config(
            vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=512,
            initializer_range=0.3, bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD,
        ),
        "mistral": MistralConfig(**SHAPE, sliding_window=WINDOW, head_dim=8),
        "gemma2": Gemma2Config(**SHAPE, sliding_window=WINDOW, head_dim=8),
        "gemma3": Gemma3TextConfig(
            **SHAPE, sliding_window=WINDOW, head_dim=8,
            layer_types=["sliding_attention", "full_attention"],
        ),
        "olmo2": Olmo2Config(**SHAPE),
        "qwen3_next": Qwen3NextConfig(
            **SHAPE, head_dim=8, layer_types=["linear_attention", "full_attention"],
            linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
            linear_value_head_dim=8, num_experts=4, num_experts_per_tok=2,
            moe_intermediate_size=16, shared_expert_intermediate_size=16,
        ),
    }  # fmt: skip


ARCHITECTURES = tuple(configurations())
SOFTMAX_ATTENTION = tuple(name for name in ARCHITECTURES if name != "qwen3_next")


def make_policy(name: str, dtype: torch.dtype = torch.float32) -> Policy:
    return Policy(make_model(name, dtype)).eval()


def make_model(name: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = configurations()[name]
        attention = "eager" if name == "gemma2" else "sdpa"  # Gemma 2 caps its attention scores
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return model.to(dtype).eval()


def response_logp(
    policy: Policy, prompts: list[list[int]], response_BT: Tensor, mask_BT: Tensor, temperature=1.0
) -> SimpleNamespace:
    """Log-probs and entropies of responses, in rows."""
    responses = Responses(prompts=prompts, response_BT=response_BT, mask_BT=mask_BT)
    output = policy(responses, LogProbs(temperature=temperature))
    return SimpleNamespace(
        logp_BT=responses.to_rows(output.logp_K), entropy_BT=responses.to_rows(output.entropy_K)
    )


def response_logits(policy: Policy, prompts: list[list[int]], response_BT: Tensor) -> Tensor:
    """Logits (B, T, V) that predict every token of the rows."""
    mask_BT = torch.ones_like(response_BT, dtype=torch.bool)
    responses = Responses(prompts=prompts, response_BT=response_BT, mask_BT=mask_BT)
    return policy(responses, Logits()).logits_KV.unflatten(0, response_BT.shape)


def document_rows(ids_RL: Tensor, position_RL: Tensor, target_RL: Tensor) -> PackedRows:
    return PackedRows(
        iteration=0, input_ids_RL=ids_RL, position_ids_RL=position_RL, loss_mask_RL=target_RL
    )


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, behind <pad>, <bos>, <eos>."""
    specials = ["<pad>", "<bos>", "<eos>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: i for i, text in enumerate([*specials, *alphabet])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>"
    )


class Chain(torch.nn.Module):
    """A model whose next token depends on the last one alone: row ``t`` of ``logits_VV``."""

    device = torch.device("cpu")

    def __init__(self, logits_VV: Tensor) -> None:
        super().__init__()
        self.table = torch.nn.Embedding.from_pretrained(logits_VV)
        self.config = LlamaConfig(**SHAPE)
        self.rows: list[int] = []

    def get_input_embeddings(self) -> torch.nn.Embedding:
        return self.table

    def forward(
        self, input_ids, position_ids=None, attention_mask=None, past_key_values=None,
        use_cache=None, logits_to_keep=0,
    ):  # fmt: skip
        self.rows.append(len(input_ids))
        return SimpleNamespace(logits=self.table(input_ids)[:, -logits_to_keep:])


class Markov(Policy):
    """A policy that is a ``Chain``."""

    def __init__(self, logits_VV: Tensor) -> None:
        super().__init__(Chain(logits_VV))

    @property
    def rows(self) -> list[int]:
        """How many rows each call had."""
        return self.model.rows


def says(*words: list[int]) -> Markov:
    """A Markov chain that certainly says each word after its first token, then goes in circles."""
    logits_VV = torch.zeros(VOCABULARY, VOCABULARY)
    for word in words:
        for last, following in pairwise(word):
            assert not logits_VV[last].any(), "a token may have only one successor"
            logits_VV[last, following] = 100.0
    return Markov(logits_VV)
