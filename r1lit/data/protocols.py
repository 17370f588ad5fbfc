"""Protocols by which data modules ask the module that they are for, and their sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@runtime_checkable
class HasTokenizer(Protocol):
    """A module that may have a tokenizer, by which its data are encoded."""

    tokenizer: PreTrainedTokenizerBase | None


@runtime_checkable
class LimitsContext(Protocol):
    """A module whose model may have a longest input."""

    @property
    def context_length(self) -> int | None:
        """The most tokens of prompt and response together; None if unknown."""


@runtime_checkable
class Describes(Protocol):
    """A source of documents that has something to say in the batch plan."""

    def describe(self) -> dict[str, Any]:
        """Return the entry of the plan."""
