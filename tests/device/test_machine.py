from __future__ import annotations

import gc
import platform
import subprocess
import sys

import pytest
import torch

from r1lit.device import Backend
from r1lit.device.cpu.machine import has_fast_bfloat16

COUNT_FAULTS = """
import resource, torch
from r1lit.device.cpu.machine import kept_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        a = torch.ones(16 << 20)
        b = torch.ones(3 << 20)
        c = a * 2
        del a, b, c
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4

first, at_first = faults(), resident()
with kept_memory() as kept:
    faults()
    inside, held = faults(), resident()
print(kept, first, inside, held - at_first, resident() - at_first)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_used_again_within_and_returned_afterwards():
    done = subprocess.run(
        [sys.executable, "-c", COUNT_FAULTS], capture_output=True, text=True, check=True
    )
    kept, *counts = done.stdout.split()
    before, inside, held, left = map(int, counts)
    assert kept == "True"
    assert before > 100_000, "five times 140 MB were to be mapped anew, 4 KB at a time"
    assert inside < before / 2
    assert held > 100_000 and left < 20_000, "kilobytes that malloc keeps"


def test_whether_bfloat16_is_fast_is_known():
    assert has_fast_bfloat16() in (True, False)
    if torch.cpu._is_avx512_bf16_supported():
        assert has_fast_bfloat16()


def test_the_collector_rests_for_the_while_and_no_longer():
    with pytest.raises(KeyError), Backend().decoding():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with Backend().decoding():
            pass
        assert not gc.isenabled(), "whoever switched it off finds it off"
    finally:
        gc.enable()
