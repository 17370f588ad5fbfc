"""Models that a class holds beside the policy, asked before any is loaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class HeldModels:
    """Models of about the policy's size; a class says so by an attribute ``held``.

    Attributes:
        trained: with gradients and an optimiser's state, shared over ranks as the policy is.
        constant: weights alone, shared so too.
        whole: weights alone, all of them on every rank, of the data type of the class's ``model``.
    """

    trained: int = 0
    constant: int = 0
    whole: int = 0


NO_MODELS = HeldModels()
