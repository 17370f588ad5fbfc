"""What tests of the CPU's own operations need."""

from __future__ import annotations

import pytest

from r1lit.device.cpu import has_bfloat16_kernels


@pytest.fixture
def kernels() -> None:
    """Skip without fast kernels. They are compiled for a test that runs, not when it is found."""
    if not has_bfloat16_kernels():
        pytest.skip("no fast bfloat16 here")
