"""How much the head works on at once, as a test wants it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from r1lit.policy.chunks import CHUNK_SIZES


@pytest.fixture
def set_chunk_sizes(monkeypatch) -> Callable[..., None]:
    """Return what changes fields of ``ChunkSizes`` on a CPU."""

    def allow(**changes: int) -> None:
        monkeypatch.setitem(CHUNK_SIZES, "cpu", replace(CHUNK_SIZES["cpu"], **changes))

    return allow
