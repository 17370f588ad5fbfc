"""How much the head works on at once, as a test wants it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from r1lit.policy.at_once import AT_ONCE


@pytest.fixture
def allow_at_once(monkeypatch) -> Callable[..., None]:
    """Return what changes fields of ``AtOnce`` on a CPU."""

    def allow(**changes: int) -> None:
        monkeypatch.setitem(AT_ONCE, "cpu", replace(AT_ONCE["cpu"], **changes))

    return allow
