"""Features of a configuration that a few tokens do not meet, and how a trial meets them anyway.

Windows, blocks and top-k of attention change nothing in rows that are shorter than they are, and
limits of time steps nothing where no step is beyond them. A trial sets them so small that its few
tokens meet them, and looks at the masks that a forward pass makes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    causal_mask_function,
    sdpa_mask,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

LARGEST = 2
"""Of windows, blocks and top-k in a trial: two blocks of two tokens are fewer than its rows."""

SIZES = re.compile(
    r"(^|_)(windows?|window_size|attention_chunk_size|block_size|index_topk|topk_blocks"
    r"|local_blocks)$"
)
TIME_STEPS = "time_step_limit"
# of time steps in a trial: softplus of what layers return is rarely as much
LEAST_TIME_STEP = 1.0


@contextmanager
def within_reach(model: PreTrainedModel, run: Callable[[], object], errors: Any) -> Iterator[None]:
    """Let a model's windows, blocks, top-k and limits of time steps be met by a few tokens.

    Configurations and modules are changed, and restored afterwards. They keep their own values
    where the model does not run with others.

    Args:
        model: in evaluation mode.
        run: makes a forward pass of a few tokens.
        errors: exceptions by which it fails.
    """
    changes = [*_sizes(model), *_time_steps(model)]
    if not changes:
        yield
        return
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in changes]
    try:
        _set(changes)
        try:
            run()
        except errors:
            _set(before)
        yield
    finally:
        _set(before)


Values = Iterable[tuple[Any, str, Any]]


def _set(values: Values) -> None:
    for owner, name, value in values:
        owner.__dict__[name] = value  # past any check of one value against others


def _sizes(model: PreTrainedModel) -> Values:
    """Yield each owner of a size, the size's name there, and a small value for it.

    Modules hold some under shorter names.
    """
    configs = _configs(model)
    found = {
        (name, value)
        for config in configs
        for name, value in vars(config).items()
        if _is_size(value) and SIZES.search(name)
    }
    for owner in (*configs, *model.modules()):
        for name, value in vars(owner).items():
            if not _is_size(value):
                continue
            if any(value == size and whole.endswith(name) for whole, size in found) or (
                SIZES.search(name) and any(value == size for _, size in found)
            ):
                yield owner, name, LARGEST


def _is_size(value: object) -> bool:
    return type(value) is int and value > LARGEST


def _configs(model: PreTrainedModel) -> list[PretrainedConfig]:
    """Return the configurations that a model and its modules read."""
    held = [model.config.get_text_config(decoder=True)]
    held += [c for m in model.modules() if isinstance(c := vars(m).get("config"), PretrainedConfig)]
    return list({id(config): config for config in held}.values())


def _time_steps(model: nn.Module) -> Values:
    """Yield the modules that limit time steps, and limits beyond which every step is."""
    for module in model.modules():
        limit = vars(module).get(TIME_STEPS)
        if isinstance(limit, tuple | list) and tuple(limit) != (0.0, math.inf):
            yield module, TIME_STEPS, (LEAST_TIME_STEP, max(LEAST_TIME_STEP, limit[1]))


class MaskWatch:
    """A record of the masks that attention gets in the forward passes of ``watch_masks``.

    ``only_causal``: whether each of them is transformers' own mask of every earlier token.
    """

    def __init__(self) -> None:
        self.only_causal = True
        self._causal: list[Tensor] = []

    def make(self, *, mask_function: Any = causal_mask_function, **options: Any) -> Tensor | None:
        """Return PyTorch's mask, also where it would be left out, and note whether it is causal."""
        mask = sdpa_mask(mask_function=mask_function, **options | {"allow_is_causal_skip": False})
        if mask is not None and _is_causal(mask_function, mask.device):
            self._causal.append(mask)
        return mask

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *args: Any,
        **options: Any,
    ) -> Any:
        """Attend, and note whether the mask is one of those that ``make`` has found causal."""
        if attention_mask is not None:
            at = attention_mask.untyped_storage().data_ptr()
            known = any(mask.untyped_storage().data_ptr() == at for mask in self._causal)
            self.only_causal = self.only_causal and known
        return sdpa_attention_forward(module, query, key, value, attention_mask, *args, **options)


@contextmanager
def watch_masks() -> Iterator[MaskWatch]:
    """Watch the masks of models whose attention is PyTorch's (``sdpa``)."""
    watch = MaskWatch()
    watched = (ALL_MASK_ATTENTION_FUNCTIONS, watch.make), (ALL_ATTENTION_FUNCTIONS, watch.attend)
    try:
        for functions, function in watched:
            functions["sdpa"] = function
        yield watch
    finally:
        for functions, _ in watched:
            del functions["sdpa"]


def _is_causal(mask_function: Callable[..., Tensor], device: torch.device) -> bool:
    """Return whether every token attends to all tokens before it, however far away they are."""
    place = torch.tensor([0, *(2**i for i in range(24)), *(2**i + 1 for i in range(1, 24))])
    place = place.sort().values.to(device)
    query, key = place[None, None, :, None], place[None, None, None, :]
    first = place.new_zeros(1, 1, 1, 1)
    try:
        found = mask_function(first, first, query, key)
    except (IndexError, RuntimeError, TypeError, ValueError):
        return False  # it goes by more than places
    return bool((found == (key <= query)).all())
