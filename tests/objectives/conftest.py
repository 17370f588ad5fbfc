from __future__ import annotations

from collections.abc import Callable

import pytest
from objective_cases import FACTORIES, Minibatch, ragged_minibatch

from r1lit.objectives import Objective


@pytest.fixture(params=FACTORIES)
def make(request) -> Callable[..., Objective]:
    """The factory of each objective in turn."""
    return FACTORIES[request.param]


@pytest.fixture
def batch() -> Minibatch:
    return ragged_minibatch()
