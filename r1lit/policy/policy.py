"""The policy: a Hugging Face causal language model whose forward pass gives log-probs.

P prompts   B rows of T response tokens   R rows of documents, of L tokens
K predicted tokens   N packed tokens   D hidden size   V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from r1lit.batches import Candidates
from r1lit.device import backend
from r1lit.policy.adapter import Adapter
from r1lit.policy.attention import PackedTokens, has_packed_attention, no_mask, pack_responses
from r1lit.policy.checkpointing import only_checkpoint
from r1lit.policy.outputs import Compute, LogProbs
from r1lit.policy.packed_documents import pack_documents
from r1lit.policy.padded_rows import document_logits, response_logits
from r1lit.policy.predictions import PolicyOutput, Predictions
from r1lit.policy.rope import beyond_rope_limit, rope_limit
from r1lit.policy.shards import StoredWeight, whole
from r1lit.supervised_batches import PackedRows


class ModelWrapper(nn.Module):
    """Wraps a Hugging Face model, ``model``.

    All that is computed with its weights is computed in ``forward``, so that DDP, FSDP2, LoRA and
    hooks may wrap this module and see every use of them.

    ``dropout``: whether training mode has any; without, all that differs between training and
    evaluation mode stays as in evaluation. ``adapter``: what is trained, where not the whole is.
    ``unread``: what its weights are to be read from once it is sharded.
    """

    adapter: Adapter | None = None
    unread: Mapping[str, StoredWeight] | None = None

    def __init__(self, model: Any, dropout: bool = True) -> None:
        super().__init__()
        self.model = model
        self.dropout = dropout

    def train(self, mode: bool = True) -> Self:
        """Switch between training and evaluation mode; see ``dropout``."""
        super().train(mode)
        if mode and not self.dropout:
            self.model.eval()
            for module in self.model.modules():
                if isinstance(module, GradientCheckpointingLayer) and module.gradient_checkpointing:
                    only_checkpoint(module)
        return self

    @property
    def config(self) -> PretrainedConfig:
        """The model's configuration."""
        return self.model.config

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.model.dtype

    @property
    def layers(self) -> nn.ModuleList:
        """The layers of the model without its head.

        Raises:
            ValueError: if it has not one list of them.
        """
        body = self._body()
        lists = [child for child in body.children() if isinstance(child, nn.ModuleList)]
        if len(lists) != 1:
            raise ValueError(f"{type(body).__name__} has {len(lists)} lists of layers, not one")
        return lists[0]

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield weights and buffers by name, tied ones under each of their names.

        Of a sharded model one whole weight at a time exists; all ranks read them together. An
        adapter is merged into them, one layer at a time.
        """
        if self.adapter is not None:
            yield from self.adapter.merged_weights()
            return
        for name, weight in self.model.state_dict().items():
            yield name, whole(weight)

    def save_pretrained(
        self, directory: str | Path, state_dict: dict[str, Tensor] | None = None
    ) -> None:
        """Write a Hugging Face directory, or the adapter alone as a PEFT folder.

        ``state_dict``: what ``gather`` returned, where the model is sharded.
        """
        if self.adapter is not None:
            self.adapter.save_pretrained(directory, state_dict)
        else:
            self.model.save_pretrained(directory, state_dict=state_dict)

    def gather(self) -> dict[str, Tensor]:
        """Return the weights to write of a sharded model, in the memory of rank 0's CPU.

        All ranks call it; the others get nothing, or an adapter alone.
        """
        if self.adapter is not None:
            return self.adapter.gather()
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        gathered: Any = get_model_state_dict(self.model, options=options)
        return gathered

    def _body(self) -> nn.Module:
        return self.model.base_model


@dataclass(frozen=True, kw_only=True)
class Responses:
    """Responses to prompts, one prompt a row; ``mask_BT`` is true at the tokens that exist.

    Its K targets are those tokens, row after row. ``environment_BT`` are those that no policy has
    sampled: they are read like all others, and values there are 0. With ``candidates`` of the
    targets, log-probs and entropies are those among them.
    """

    prompts: Sequence[Sequence[int]]
    response_BT: Tensor
    mask_BT: Tensor
    environment_BT: Tensor | None = None
    candidates: Candidates | None = None

    @property
    def target_K(self) -> Tensor:
        """The tokens that are predicted."""
        return self.response_BT[self.mask_BT]

    def to_rows(self, value_K: Tensor) -> Tensor:
        """Return values of the targets in rows (B, T); 0 where no token was sampled."""
        zero_BT = torch.zeros(self.mask_BT.shape, dtype=value_K.dtype, device=value_K.device)
        return zero_BT.masked_scatter(self.mask_BT, self.hide_environment(value_K))

    def hide_environment(self, value_K: Tensor) -> Tensor:
        """Return values of the targets with 0 at those that no policy has sampled."""
        if self.environment_BT is None:
            return value_K
        return torch.where(self.environment_BT[self.mask_BT], 0.0, value_K)


@dataclass(frozen=True, kw_only=True)
class HiddenStates:
    """Hidden states that ``States`` has returned, and the tokens predicted there."""

    states_KD: Tensor
    target_K: Tensor


class Policy(ModelWrapper):
    """Wraps a Hugging Face causal language model; ``model`` is that model.

    ``rope_limit``: the longest row it takes, where its rotary frequencies would change beyond.
    """

    def __init__(self, model: PreTrainedModel, dropout: bool = True) -> None:
        super().__init__(model, dropout)
        self.rope_limit = rope_limit(model.config)

    def forward(
        self, inputs: Responses | PackedRows | HiddenStates, compute: Compute | None = None
    ) -> PolicyOutput:
        """Predict K tokens, and compute what ``output`` requests there.

        Args:
            inputs: responses to prompts; rows of documents, whose ``position_ids_RL`` restart at 0
                at each document and whose ``loss_mask_RL`` is true at targets; or states that this
                policy has returned.
            compute: ``LogProbs()`` if left out.

        Raises:
            ValueError: if a row is longer than ``rope_limit``.
        """
        predictions, target_K = self._predict(inputs)
        if isinstance(inputs, Responses) and inputs.candidates is not None:
            predictions = replace(predictions, candidates=inputs.candidates)
        return (compute or LogProbs())(predictions, target_K)

    def check_length(self, length: int) -> None:
        """Raise a ValueError for a row that is longer than ``rope_limit``."""
        if self.rope_limit is not None and length > self.rope_limit:
            raise ValueError(beyond_rope_limit(length, self.rope_limit))

    def _body(self) -> nn.Module:
        return self.model.get_decoder()

    def _predict(self, inputs: Responses | PackedRows | HiddenStates) -> tuple[Predictions, Tensor]:
        """Return the predictions of the targets (K), and the targets."""
        if isinstance(inputs, HiddenStates):
            return self._of_states(inputs.states_KD), inputs.target_K
        if isinstance(inputs, PackedRows):
            rows = inputs.input_ids_RL, inputs.position_ids_RL, inputs.loss_mask_RL
            target_K = inputs.input_ids_RL[inputs.loss_mask_RL]
            packed, predictor_K = pack_documents(*rows)
            if self.rope_limit is not None:
                self.check_length(int(packed.position_N.max()) + 2)
            if not is_packed(self):
                return _of_logits(document_logits(self.model, packed, predictor_K)), target_K
            return self._of_states(self._packed_hidden(packed)[predictor_K]), target_K
        lengths_B = inputs.mask_BT.sum(-1).tolist()
        self.check_length(max(len(p) + n for p, n in zip(inputs.prompts, lengths_B, strict=True)))
        if not is_packed(self):
            logits_BTV = response_logits(self.model, inputs.prompts, inputs.response_BT, lengths_B)
            return _of_logits(logits_BTV[inputs.mask_BT]), inputs.target_K
        packed, predictor_K, target_K = pack_responses(
            inputs.prompts, inputs.response_BT, inputs.mask_BT
        )
        # an embedding lookup: its gradient sums a prompt's last token over its rows in parallel
        hidden_KD = nn.functional.embedding(predictor_K, self._packed_hidden(packed))
        return self._of_states(hidden_KD), target_K

    def _of_states(self, states_KD: Tensor) -> Predictions:
        """Return states with the head that makes logits of them, in ``Predictions``."""
        if not is_packed(self):
            return _of_logits(states_KD)
        head = self.model.get_output_embeddings()
        if type(head) is nn.Linear:
            return Predictions(states_KD=states_KD, weight_VD=head.weight)
        # one with an adapter, or sharded on its own, must be called
        return _of_logits(head(states_KD))

    def _packed_hidden(self, packed: PackedTokens) -> Tensor:
        """Run the body over packed tokens; return the last hidden states ``[N, D]``."""
        ids = packed.ids_N[None]
        states = backend(ids.device).embed(self.model.get_input_embeddings(), ids)
        output = self.model.get_decoder()(
            **({"input_ids": ids} if states is None else {"inputs_embeds": states}),
            position_ids=packed.position_N[None],
            attention_mask=no_mask(packed.ids_N.device),
            use_cache=False,
            packed=packed,
        )
        return output.last_hidden_state[0]


def is_packed(policy: Policy) -> bool:
    """Return whether the policy computes packed tokens: no padding, shared prompts once."""
    return has_packed_attention(policy.model)


def _of_logits(logits_KV: Tensor) -> Predictions:
    return Predictions(states_KD=logits_KV, weight_VD=None)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off for the while, and leave every part in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
