"""Compiling with what the machine has, and doing without where it has too little."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx.experimental._config as shapes
from torch._dynamo.exc import TorchDynamoException
from torch._inductor.exc import CppCompileError, InductorError, InvalidCxxCompiler

from r1lit.policy.loading import first_line

FAILURES = (TorchDynamoException, InductorError, CppCompileError, InvalidCxxCompiler)


_ANNOUNCED: set[str] = set()
"""Functions of this process whose compiling was announced; other engines find them compiled."""


class Compiled:
    """A function compiled by ``torch.compile`` for sizes of any number.

    Call it within ``any_sizes``. Where compilation fails, for want of a C++ compiler for example,
    the function runs as it is from then on, after one warning. Its arguments are then handed to it
    again.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._call = torch.compile(function, dynamic=True)
        self._compiles = self._call is not function and not torch._dynamo.config.disable

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function, compiling it first where that is to be."""
        name = self._function.__name__.strip("_")
        if self._compiles and name not in _ANNOUNCED:
            print(f"compiling {name}, once a process …", file=sys.stderr, flush=True)
            _ANNOUNCED.add(name)
        try:
            return self._call(*args, **options)
        except FAILURES as error:
            warnings.warn(
                f"{self._function.__name__} runs uncompiled, which is slower: torch.compile failed"
                f" with {type(error).__name__} ({first_line(error)})",
                stacklevel=2,
            )
            self._call = self._function
            return self._call(*args, **options)


@contextmanager
def any_sizes() -> Iterator[None]:
    """Let sizes that happen to be equal in a first call be no reason to compile again."""
    with shapes.patch(use_duck_shape=False):  # type: ignore[attr-defined]
        yield
